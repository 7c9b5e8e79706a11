"""Two trained models on real text: the figures of docs/probe.md, and that what is measured is what plain hooks see.

The models come inside packages that `.ci/weights` installs (176 MB). Without them these tests skip; where CI is set they fail.
"""

import pathlib
import random
import re
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import skipway

from ..benches import bench as load
from ..benches import trained

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "probe.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    pytest.importorskip("transformers")
    return load("probe_real_weights")


def row(name: str, index: int) -> list[str]:
    """The words of one row that the page shows."""
    text = re.findall(rf"<!-- real: {name} -->\n```text\n(.*?)```", PAGE, re.S)[0]
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [str(index)])


@pytest.mark.slow
def test_the_encoder_is_what_the_page_says(bench: ModuleType) -> None:
    trained("minilm")
    table = bench.probed(*bench.ready("minilm"))
    rows, summary = table["rows"], table["summary"][0]
    assert len(rows) == 12 and {r["placement"] for r in rows} == {"post"} and table["weights"] == "model.safetensors"
    assert table["loss"] == pytest.approx(1.149, abs=0.01)
    assert (summary["growth"], summary["gradient"], summary["effective_depth"]) == (pytest.approx(2.87, rel=0.01), pytest.approx(2.63, rel=0.02), 10)
    assert summary["rank_correlation"] == pytest.approx(0.07, abs=0.05) and summary["stem_identity"] == pytest.approx(0.0228, rel=0.05)
    assert (rows[11]["influence"], rows[11]["lesion"]) == (pytest.approx(0.614, abs=0.005), pytest.approx(-0.057, abs=0.01))
    assert (rows[10]["influence"], rows[10]["lesion"]) == (pytest.approx(0.121, abs=0.003), pytest.approx(0.503, abs=0.01))
    assert (rows[1]["largest"], rows[1]["channel"]) == (pytest.approx(224, rel=0.01), 99)
    shown = row("minilm", 11)
    assert shown[2] == "ffn" and float(shown[3]) == pytest.approx(rows[11]["after"], rel=0.01)


def test_the_encoder_measured_by_hand(bench: ModuleType) -> None:
    """Plain hooks on the sublayers of a few blocks, on eight short rows."""
    folder = trained("minilm")
    from skipway.targets import resolve
    made = resolve(f"hf:{folder}").with_numbers()
    ids = torch.randint(1000, 20000, (8, 12), generator=torch.Generator().manual_seed(0))
    seen: dict[str, Tensor] = {}

    def watch(name: str) -> Any:
        def hook(module: Any, args: Any, out: Any) -> None:
            seen[f"{name} in"], seen[f"{name} out"] = args[0], out[0] if isinstance(out, tuple) else out
        return hook
    hooks = [module.register_forward_hook(watch(name)) for name, module in made.model.named_modules() if name.endswith(("LayerNorm", "dropout"))]
    with torch.no_grad():
        made.model(input_ids=ids)
    for hook in hooks:
        hook.remove()
    rows = skipway.probe(made.model, input_ids=ids).rows

    def size(t: Tensor) -> float:
        return float(t.double().square().mean().sqrt())
    for block in (0, 3, 5):
        for number, part in enumerate(("attention.output", "output")):
            at = f"encoder.layer.{block}.{part}"
            total, branch = seen[f"{at}.LayerNorm in"], seen[f"{at}.dropout out"]
            found = rows[2 * block + number]
            before = total - branch
            assert found.after == pytest.approx(size(total), rel=1e-5) and found.branch == pytest.approx(size(branch), rel=1e-5)
            assert found.before == pytest.approx(size(before), rel=1e-4)
            wanted = 1 - torch.cosine_similarity(before.double(), total.double(), dim=-1).mean().item()
            assert found.influence == pytest.approx(wanted, rel=1e-4)
            assert found.largest == pytest.approx(float(total.abs().max()), rel=1e-5)


@pytest.fixture(scope="module")
def smollm2(bench: ModuleType) -> Any:
    trained("smollm2")
    return bench.ready("smollm2", lesion=False)


@pytest.mark.slow
def test_the_language_model_is_what_the_page_says(bench: ModuleType, smollm2: Any) -> None:
    table = bench.probed(*smollm2)
    rows, summary = table["rows"], table["summary"][0]
    assert len(rows) == 60 and table["weights"] == "SmolLM2-135M-Instruct.Q4_1.gguf" and table["inputs"] == "text text.txt, 2 x 128 tokens"
    assert table["loss"] == pytest.approx(3.558, abs=0.02)
    assert (summary["growth"], summary["gradient"], summary["verdict"]) == (pytest.approx(381, rel=0.02), pytest.approx(11.8, rel=0.03), "exploding")
    assert summary["effective_depth"] == pytest.approx(35, abs=1) and summary["stem_identity"] < 1e-5
    assert (rows[23]["largest"], rows[23]["channel"]) == (pytest.approx(24616, rel=0.01), 507)
    assert {rows[i]["channel"] for i in range(3, 59)} == {507}
    assert (rows[22]["rank"], rows[23]["rank"]) == (pytest.approx(86.1, rel=0.01), pytest.approx(4.9, rel=0.02))
    assert (rows[1]["influence"], rows[23]["influence"]) == (pytest.approx(0.938, abs=0.005), pytest.approx(0.0311, abs=0.002))
    assert all(0.009 < r["ratio"] < 0.09 for r in rows[24:57])
    for index in (1, 23, 59):
        assert float(row("smollm2", index)[3]) == pytest.approx(rows[index]["after"], rel=0.01)


def nothing(module: Any, args: Any, out: Any) -> Any:
    """Zeros in place of what a sublayer gives."""
    return torch.zeros_like(out) if isinstance(out, Tensor) else (torch.zeros_like(out[0]), *out[1:])


@pytest.mark.slow
def test_lesions_by_hand_are_what_the_page_says(smollm2: Any) -> None:
    """The sites that the page speaks of and a seeded sample of the others: the sublayer's module gives zeros."""
    made, data, _ = smollm2
    ids = data.given.kwargs["input_ids"]

    def loss() -> float:
        with torch.no_grad():
            logits = made.model(input_ids=ids).logits
        return float(torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()))
    whole = loss()
    for index in (1, 23, 59, *random.Random(0).sample(range(60), 3)):
        layer = made.model.model.layers[index // 2]
        part = layer.mlp if index % 2 else layer.self_attn
        hook = part.register_forward_hook(nothing)
        try:
            change = loss() - whole
        finally:
            hook.remove()
        assert change == pytest.approx(float(row("smollm2", index)[8]), rel=0.02, abs=0.005)
