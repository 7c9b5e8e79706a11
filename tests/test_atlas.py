"""The atlas: wirings of one family agree or the difference is explained, released models have no error that is not proved, and it is current."""

import json
import pathlib
import random
from typing import Any

import pytest

from .benches import bench

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "atlas.json"
if not PAGE.is_file():
    pytest.skip("docs/atlas.json is not there; python bench/atlas.py makes it", allow_module_level=True)
RECORDS: dict[str, dict[str, Any]] = {r["target"]: r for r in json.loads(PAGE.read_text(encoding="utf-8"))}
BARS = {"hf": 0.90, "timm": 0.95, "torchvision": 1.0}

Signature = list[tuple[tuple[str, ...], bool, int]]


def block(placement: str, norm: str, *kinds: str) -> tuple[str, ...]:
    return tuple(f"{placement} {norm} {kind}" for kind in kinds)


def decoder(placement: str, norm: str, final: bool = True) -> Signature:
    return [(block(placement, norm, "self_attention", "ffn"), final, 1)]


def two(placement: str, norm: str, final: bool) -> Signature:
    reads = block(placement, norm, "self_attention", "cross_attention", "ffn")
    return [(block(placement, norm, "self_attention", "ffn"), final, 1), (reads, final, 1)]


# A family: what its members have in common, the members, and those that differ with the reason, which stands in the class named.
FAMILIES: dict[str, tuple[Signature, list[str], dict[str, tuple[Signature, str]]]] = {
    "llama": (decoder("pre", "RMSNorm"), ["llama", "mistral", "qwen2", "qwen3", "phi3", "granite", "gemma", "smollm3", "glm", "arcee", "apertus"], {
        "olmo": (decoder("pre", "LayerNorm"), "OlmoLayerNorm: a LayerNorm without parameters"),
        "starcoder2": (decoder("pre", "LayerNorm"), "Starcoder2DecoderLayer: nn.LayerNorm with bias"),
        "stablelm": (decoder("pre", "LayerNorm"), "StableLmDecoderLayer: nn.LayerNorm"),
        "cohere": (decoder("pre", "LayerNorm"), "CohereDecoderLayer: one LayerNorm; its parallel branches are told in the column of parallel sites"),
        "olmo2": (decoder("output", "RMSNorm"), "Olmo2DecoderLayer norms the branch's output: post_attention_layernorm, post_feedforward_layernorm"),
        "gemma2": (decoder("sandwich", "RMSNorm"), "Gemma2DecoderLayer norms before and after each branch"),
        "gemma3_text": (decoder("sandwich", "RMSNorm"), "Gemma3DecoderLayer, as Gemma 2"),
        "glm4": (decoder("sandwich", "RMSNorm"), "Glm4DecoderLayer: post_self_attn_layernorm, post_mlp_layernorm")}),
    "bert": (decoder("post", "LayerNorm", False), ["bert", "roberta", "electra", "camembert", "xlm-roberta", "distilbert", "deberta"], {}),
    "gpt2": (decoder("pre", "LayerNorm"), ["gpt2", "gpt_neo", "opt", "bloom"], {}),
    "parallel": ([(("pre LayerNorm ffn+self_attention",), True, 1)], ["gptj", "gpt_neox", "falcon"], {}),
    "t5": (two("pre", "RMSNorm", True), ["t5", "mt5", "umt5", "longt5"], {}),
    "bart": (two("post", "LayerNorm", False), ["bart", "marian"], {
        "mbart": (two("pre", "LayerNorm", True), "MBartEncoderLayer norms before the branch, with layer_norm at the end of both stacks"),
        "pegasus": (two("pre", "LayerNorm", True), "PegasusEncoderLayer, as mBART"),
        "blenderbot": (two("pre", "LayerNorm", True), "BlenderbotEncoderLayer, as mBART")}),
    "speech": (two("pre", "LayerNorm", True), ["whisper", "speech_to_text"], {}),
    "vit": (decoder("pre", "LayerNorm"), ["vit", "deit", "dinov2", "vit_mae", "ijepa"], {
        "beit": (decoder("pre", "LayerNorm", False), "BeitModel pools the mean of the patches and norms that (BeitPooler), not the stream")}),
}


def signature(target: str) -> Signature:
    record = RECORDS[target]
    assert record["checked"], f"{target} was not checked: {record.get('reason')}"
    return [(tuple(s["signature"]), s["final_norm"], s["lanes"]) for s in record["streams"]]


@pytest.mark.parametrize(("family", "member"), [(f, m) for f, (_, members, _) in FAMILIES.items() for m in members])
def test_members_of_a_family_agree(family: str, member: str) -> None:
    assert signature(f"hf:{member}") == FAMILIES[family][0]


@pytest.mark.parametrize(("family", "member"), [(f, m) for f, (_, _, others) in FAMILIES.items() for m in others])
def test_those_that_differ_do_so_as_explained(family: str, member: str) -> None:
    common, _, others = FAMILIES[family]
    want, why = others[member]
    if member != "cohere":
        assert want != common
    assert signature(f"hf:{member}") == want, why


@pytest.mark.parametrize("kind", BARS)
def test_as_many_are_checked_as_the_bar_wants(kind: str) -> None:
    mine = [r for t, r in RECORDS.items() if t.startswith(kind + ":")]
    assert len(mine) > 50
    assert sum(r["checked"] for r in mine) >= BARS[kind] * len(mine)
    assert all(r["reason"] for r in mine if not r["checked"])


def test_every_error_is_proved() -> None:
    """A model with a finding of level error stands in docs/atlas-findings.md with its rule."""
    from skipway import _registry
    errors = {m.CODE for name in _registry.names("skipway.rules") for m in [_registry.load("skipway.rules", name)] if m.SEVERITY == "error"}
    proved = (ROOT / "docs" / "atlas-findings.md").read_text(encoding="utf-8")
    rows = [line for line in proved.splitlines() if line.startswith("| `")]
    missing = []
    for target, record in RECORDS.items():
        for code in record.get("errors", ()):
            assert code in errors
            named = [row for row in rows if code in row and any(_names(part.strip(), target) for part in row.split("|")[1].split(","))]
            if not named:
                missing.append(f"{target} {code}")
    assert missing == []


def _names(pattern: str, target: str) -> bool:
    import fnmatch
    return fnmatch.fnmatch(target, pattern.strip("`"))


def current() -> list[str]:
    """A sample of small models, the same in every run."""
    small = [t for t, r in sorted(RECORDS.items()) if r["checked"] and r["how"] == "abstract" and r["parameters"] < 200_000_000]
    return random.Random(0).sample(small, 12)


@pytest.mark.parametrize("target", current())
def test_a_sample_is_current(target: str) -> None:
    from skipway.checks.config import Config
    from skipway.cli._run import checked
    from skipway.targets import resolve
    options = {"stage": "graph", "expect": None, "select": (), "ignore": (), "hooks": (), "dtype": None, "entry_points": {}}
    report = checked(resolve(target), "eval", options, Config()).to_dict()
    assert bench("_atlas_pages").record({"target": target, "report": report}) == RECORDS[target]
