"""What the decoders of the GPT line share: their numbers, embeddings, forward and the names of their checkpoints."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from skipway.models._base import Config, Model, Output, Row, fused, named
from skipway.models._fields import ACTIVATION_WRITTEN, Fields
from skipway.models._parts import Positions, causal, initial_normal
from skipway.nn import Attention, FeedForward, Stack


@dataclass(frozen=True, kw_only=True)
class GPTConfig(Config):
    """Numbers of a GPT."""

    vocab: int
    context: int = 1024
    hidden: int | None = None           # 4 dim
    activation: str = "gelu_tanh"
    eps: float = 1e-5
    dropout: float = 0.0                # of what a branch adds
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0      # of the attention weights


class GPT(Model):
    """Token ids (batch, tokens) to logits (batch, tokens, vocab): h = E[ids] + P[positions], a stack of attentions and feed-forwards,
    a head that is E."""

    PREFIX = "transformer."
    IGNORED = (".attn.bias", ".attn.masked_bias")           # causal masks in old files
    LM: ClassVar[str]                                       # transformers' classes with and without a head
    BASE: ClassVar[str]
    NAMES: ClassVar[tuple[str, str, str]]                   # of the two embeddings and the activation, in a checkpoint
    stack: Stack

    def around(self, c: GPTConfig) -> None:
        """Makes what stands before and behind the stack."""
        self.embed = nn.Embedding(c.vocab, c.dim)
        self.positions = Positions(c.context, c.dim)
        self.dropout = nn.Dropout(c.embedding_dropout)
        self.head = nn.Linear(c.dim, c.vocab, False) if c.head else None
        self.tied = (("embed.weight", "head.weight"),) if c.head else ()

    def make(self, c: GPTConfig, rule: dict[str, Any]) -> None:
        self.around(c)
        branches: list[nn.Module] = []
        for k in range(c.blocks):
            branches.append(self.attention(c, k))
            branches.append(FeedForward(c.dim, c.hidden, c.activation))
        self.stack = Stack(branches, c.dim, norm=partial(nn.LayerNorm, eps=c.eps), dropout=c.dropout, **rule)
        initial_normal(self, 0.02)

    def attention(self, c: Any, block: int) -> Attention:
        """The attention of a block."""
        return Attention(c.dim, c.heads, True, dropout=c.attention_dropout)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None, *, states: bool = False) -> Output:
        """input_ids (batch, tokens); attention_mask (batch, tokens), 1 for a real token."""
        x = self.dropout(self.embed(input_ids) + self.positions(input_ids, position_ids))
        y, seen, extras = self.run(self.stack, x, states, **causal(attention_mask, None))
        return Output(None if self.head is None else self.head(y), y, seen, extras)

    @classmethod
    def read(cls, f: Fields) -> GPTConfig:
        f.same("scale_attn_weights", True)
        f.same("scale_attn_by_inverse_layer_idx", False)
        f.same("add_cross_attention", False)
        f.same("tie_word_embeddings", True)
        f.skip("reorder_and_upcast_attn", "n_ctx", "predict_special_tokens", *(k for k in f.data if k.startswith("summary_")))
        return GPTConfig(
            dim=f.take("n_embd"), blocks=f.take("n_layer"), heads=f.take("n_head"), vocab=f.take("vocab_size"), context=f.take("n_positions", 1024),
            hidden=f.take("n_inner", None), activation=cls.function(f), eps=f.take("layer_norm_epsilon", 1e-5), dropout=f.take("resid_pdrop", 0.1),
            embedding_dropout=f.take("embd_pdrop", 0.1), attention_dropout=f.take("attn_pdrop", 0.1), head=f.architecture(cls.LM, cls.BASE) == cls.LM)

    @classmethod
    def function(cls, f: Fields) -> str:
        """The kind of the feed-forwards."""
        return f.activation(cls.NAMES[2], "gelu_new")

    def written(self) -> dict[str, Any]:
        c: Any = self.config
        return {"model_type": self.MODEL_TYPES[0], "architectures": [self.LM if c.head else self.BASE], "n_embd": c.dim, "n_layer": c.blocks,
                "n_head": c.heads, "vocab_size": c.vocab, "n_positions": c.context, self.NAMES[2]: ACTIVATION_WRITTEN[c.activation],
                "layer_norm_epsilon": c.eps, "resid_pdrop": c.dropout, "embd_pdrop": c.embedding_dropout, "attn_pdrop": c.attention_dropout}

    def rows(self) -> Iterator[Row]:
        c: Any = self.config
        yield from named("embed", self.NAMES[0])
        yield from named("positions", self.NAMES[1])
        for k in range(c.blocks):
            a, m, theirs = f"stack.layers.{2 * k}", f"stack.layers.{2 * k + 1}", f"h.{k}"
            yield from named(f"{a}.scheme.norm", f"{theirs}.ln_1", True)
            yield from named(f"{m}.scheme.norm", f"{theirs}.ln_2", True)
            # Their matrices stand the other way round, and query, key and value in one.
            yield from fused((f"{a}.branch.query", f"{a}.branch.key", f"{a}.branch.value"), f"{theirs}.attn.c_attn", True, "rows turned")
            yield from named(f"{a}.branch.output", f"{theirs}.attn.c_proj", True, "turned")
            yield from named(f"{m}.branch.input", f"{theirs}.mlp.c_fc", True, "turned")
            yield from named(f"{m}.branch.output", f"{theirs}.mlp.c_proj", True, "turned")
        if self.stack.final_norm is not None:
            yield from named("stack.final_norm", "ln_f", True)
        if c.head:
            yield from named("head", "/lm_head")
