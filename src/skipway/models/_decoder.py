"""What the decoders with rotary positions share: their numbers, forward, windows, and the names of their checkpoints."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor, nn

from skipway.models._base import Config, Model, Output, Row, named
from skipway.models._fields import Fields, rope_written
from skipway.models._parts import causal
from skipway.nn import Stack


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(Config):
    """Numbers of a decoder."""

    vocab: int
    hidden: int
    kv_heads: int
    head_dim: int | None = None
    context: int = 2048
    rotary: dict[str, Any] = field(default_factory=lambda: {"theta": 10000.0})
    eps: float = 1e-6
    tied: bool = False
    attention_bias: bool = False
    attention_dropout: float = 0.0
    pad: int | None = None              # the token whose embedding does not learn
    window: int | None = None           # a token sees those less than this away, in the blocks that slide
    slides: tuple[bool, ...] = (True,)  # which blocks do, over and over

    def window_of(self, block: int) -> int | None:
        """The window of a block, None where it has none."""
        return self.window if self.slides[block % len(self.slides)] else None


class Decoder(Model):
    """Token ids (batch, tokens) to logits (batch, tokens, vocab). A subclass makes the stack."""

    PREFIX = "model."
    IGNORED = ("rotary_emb.inv_freq",)
    LM: ClassVar[str]                   # transformers' class, without For...
    stack: Stack

    def around(self, c: DecoderConfig, bias: bool = False) -> None:
        """Makes what stands before and behind the stack."""
        self.embed = nn.Embedding(c.vocab, c.dim, c.pad)
        self.head = nn.Linear(c.dim, c.vocab, bias) if c.head else None
        self.tied = (("embed.weight", "head.weight"),) if c.tied and c.head else ()

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None, *, states: bool = False) -> Output:
        """input_ids (batch, tokens); attention_mask (batch, tokens), 1 for a real token. extras: the routers' logits, where there are experts."""
        y, seen, extras = self.run(self.stack, self.embed(input_ids), states, **causal(attention_mask, position_ids))
        return Output(None if self.head is None else self.head(y), y, seen, extras)

    @classmethod
    def numbers(cls, f: Fields, theta: float = 10000.0, eps: float = 1e-6, tied: bool = False, **other: Any) -> dict[str, Any]:
        """The numbers that a config.json of this line tells."""
        kind = f.data["model_type"]
        lm = cls.class_of(kind)
        heads = f.take("num_attention_heads")
        numbers: dict[str, Any] = {
            "dim": f.take("hidden_size"), "blocks": f.take("num_hidden_layers"), "heads": heads, "kv_heads": f.take("num_key_value_heads", heads),
            "hidden": f.take("intermediate_size"), "vocab": f.take("vocab_size"), "head_dim": f.take("head_dim", None),
            "context": f.take("max_position_embeddings", 2048), "eps": f.take("rms_norm_eps", eps), "tied": f.take("tie_word_embeddings", tied),
            "attention_dropout": f.take("attention_dropout", 0.0), "pad": f.take("pad_token_id", None),
            "head": f.architecture(f"{lm}ForCausalLM", f"{lm}Model").endswith("LM")}
        if "rotary" not in other:
            numbers["rotary"] = f.rope(theta)
        return numbers | other

    @classmethod
    def class_of(cls, model_type: str) -> str:
        """The beginning of the names of transformers' classes for a model_type."""
        return cls.LM

    def wrote(self, model_type: str, **other: Any) -> dict[str, Any]:
        """The fields of config.json that `numbers` reads."""
        c: Any = self.config
        made = {"model_type": model_type, "architectures": [self.class_of(model_type) + ("ForCausalLM" if c.head else "Model")], "hidden_act": "silu",
                "hidden_size": c.dim, "num_hidden_layers": c.blocks, "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads,
                "intermediate_size": c.hidden, "vocab_size": c.vocab, "max_position_embeddings": c.context,
                "rope_parameters": rope_written(c.rotary), "rms_norm_eps": c.eps, "tie_word_embeddings": c.tied,
                "attention_dropout": c.attention_dropout, "pad_token_id": c.pad}
        return made | ({} if c.head_dim is None else {"head_dim": c.head_dim}) | other

    def outer_rows(self, norm: str = "norm", bias: bool = False) -> Iterator[Row]:
        """The rows of what stands before and behind the stack."""
        yield from named("embed", "embed_tokens")
        if self.stack.final_norm is not None:
            yield from named("stack.final_norm", norm, bias)
        if self.head is not None:
            yield from named("head", "/lm_head", bias)


def slides(types: list[str] | None, blocks: int) -> tuple[bool, ...] | None:
    """Which blocks slide, by their `layer_types`, as the shortest row that tells it when it is said over and over."""
    if not types:
        return None
    told = [t == "sliding_attention" for t in types]
    size = next(n for n in range(1, len(told) + 1) if all(told[k] == told[k % n] for k in range(len(told))))
    return tuple(told[:size])


def layer_types(c: DecoderConfig) -> list[str]:
    """`layer_types` of config.json."""
    return ["full_attention" if c.window_of(k) is None else "sliding_attention" for k in range(c.blocks)]


def attention_rows(ours: str, theirs: str, bias: bool = False, out_bias: bool | None = None, output: str = "o_proj") -> Iterator[Row]:
    """The rows of an attention's four projections."""
    for name in ("query", "key", "value"):
        yield from named(f"{ours}.{name}", f"{theirs}.{name[0]}_proj", bias)
    yield from named(f"{ours}.output", f"{theirs}.{output}", bias if out_bias is None else out_bias)


def gated_rows(ours: str, theirs: str, bias: bool = False) -> Iterator[Row]:
    """The rows of a gated feed-forward's three projections."""
    for name, other in (("gate", "gate"), ("input", "up"), ("output", "down")):
        yield from named(f"{ours}.{name}", f"{theirs}.{other}_proj", bias)


def expert_rows(ours: str, theirs: str, experts: int) -> Iterator[Row]:
    """The rows of experts that stand one by one in a checkpoint, and of their router."""
    yield Row(f"{ours}.router.weight", f"{theirs}.gate.weight")
    for name, other in (("gate", "gate"), ("input", "up"), ("output", "down")):
        yield Row(f"{ours}.{name}", tuple(f"{theirs}.experts.{e}.{other}_proj.weight" for e in range(experts)), "stacked")
