"""Kinds of variant: schemes, models and factories, which tasks a model fits, and what is said where one does not."""

import pathlib
from dataclasses import replace
from typing import Any

import pytest
import torch
from small import arm
from torch import nn

from skipway import lab, models
from skipway._errors import SkipwayError, StudyError
from skipway.lab import tasks, variants
from skipway.lab._arms import wanted
from skipway.lab._model import build, check, pairing
from skipway.lab._names import parse

TOKENS, DIGITS = tasks.build("copy:symbols=4,length=3"), tasks.build("digits")
DECODERS = ("deepseek", "deepseek_v4", "gemma", "gpt", "gpt2", "gpt3", "gpt_oss", "llama", "mistral", "phi", "qwen")
PICTURES = ("resnet", "vit")


def made(text: str, task: Any = TOKENS, **fields: Any) -> Any:
    study = lab.Study(**{"task": "digits" if task is DIGITS else "copy:symbols=4,length=3", "variants": [text], "depth": 2, "width": 16, "heads": 4,
                         **fields})
    return wanted(study, task)[0].arm


@pytest.mark.parametrize("name", models.names())
def test_a_model_fits_its_tasks_and_says_where_it_does_not(name: str) -> None:
    """Every architecture against both kinds of input: it runs with the study's width and depth, or one line says why not."""
    for task, fitting in ((TOKENS, DECODERS), (DIGITS, PICTURES)):
        if name in fitting:
            model = check(made(name, task), task)
            config = model.model.config
            assert (config.dim, config.blocks) == (16, 2) and model(task.batch("train", 0, 0, 3).inputs).shape[-1] == task.classes
        else:
            with pytest.raises(StudyError, match=f"^variant {name}: ") as error:
                check(made(name, task), task)
            assert "\n" not in str(error.value)


def test_a_wider_model_keeps_its_proportions() -> None:
    for width, heads in ((32, 4), (64, 8)):
        c = build(made("qwen", width=width, heads=heads), TOKENS, 0).model.config
        tiny = models.sizes("qwen")["tiny"]
        assert c.hidden / c.dim == pytest.approx(tiny.hidden / tiny.dim) and c.kv_heads * 2 == c.heads == heads
        assert c.head_dim * c.heads == c.dim and c.vocab == 5 and c.context == 6
    assert build(made("resnet", DIGITS, depth=5), DIGITS, 0).model.config.depths == (3, 2)


def test_a_model_variant_in_words() -> None:
    plain, zero, lanes = (made(t) for t in ("llama", "llama:scheme=rezero", "llama:scheme=hyper,lanes=2,kv_heads=4"))
    assert (plain.kind, plain.model, plain.scheme, zero.scheme, lanes.options) == (
        "model", "llama", None, "rezero", {"scheme": "hyper", "lanes": 2, "kv_heads": 4})
    model = build(lanes, TOKENS, 0).model
    assert model.config.kv_heads == 4 and model.stack.layers[0].scheme.lanes == 2
    assert build(zero, TOKENS, 0).model.stack.layers[0].scheme.name() == "rezero"


def test_models_of_one_family_start_alike() -> None:
    """What two rules do not ask for themselves starts equal, whatever else the models hold."""
    base, other = (build(made(t), TOKENS, 0) for t in ("llama", "llama:scheme=highway"))
    shared, paired = pairing(other, base)
    assert shared == paired > 3000
    assert pairing(build(made("llama"), TOKENS, 1), base)[1] < shared
    wishes = build(made("llama:scheme=deepnorm"), TOKENS, 0)
    ends = [p for n, p in wishes.named_parameters() if "stack" not in n]
    assert all(torch.equal(p, dict(base.named_parameters())[n]) for n, p in wishes.named_parameters() if "stack" not in n) and len(ends) == 2
    assert pairing(wishes, base)[1] < pairing(wishes, base)[0], "deepnorm asks for a start of its own"


def test_a_tied_table_starts_as_a_head_does() -> None:
    model = build(made("gpt2", width=64), TOKENS, 0).model
    assert model.head.weight is model.embed.weight and float(model.embed.weight.detach().std()) == pytest.approx(1 / 8, rel=0.2)
    assert float(model.positions.weight.detach().std()) == pytest.approx(0.5 ** 0.5, rel=0.2)


def test_pictures_are_what_they_were_cut_from() -> None:
    from sklearn.datasets import load_digits
    rows = DIGITS.rows["train"].inputs
    order = torch.randperm(1797, generator=torch.Generator().manual_seed(tasks._base.seed_of("digits")))
    whole = torch.tensor(load_digits().images, dtype=torch.float32)[order][1797 // 5:] / 16
    assert torch.equal(DIGITS.pictures(rows[:50])[:, 0], whole[:50])


@pytest.mark.parametrize(("text", "part"), [
    ("lama", "unknown variant 'lama'; did you mean llama"),
    ("llama:scheme=rezro", "model llama: unknown scheme 'rezro'; did you mean rezero"),
    ("llama:kv_head=2", "model llama: unknown option 'kv_head'; did you mean kv_heads"),
    ("llama:lanes=2", "model llama: unknown option 'lanes'"),
    ("llama:dim=32", "model llama: its dim is the study's width; give --width"),
    ("llama:vocab=9", "model llama: its vocab is the task's; leave it out"),
    ("llama:kv_heads=3", "kv_heads"),
])
def test_a_wrong_model_variant(text: str, part: str) -> None:
    with pytest.raises(SkipwayError) as error:
        build(made(text), TOKENS, 0)
    assert part in str(error.value) and "\n" not in str(error.value)


def test_what_a_model_does_not_follow_is_no_factor_across_it() -> None:
    with pytest.raises(StudyError, match="variant gpt2: norm changes nothing of it; leave norm out"):
        wanted(lab.Study(task="copy", variants=["pre_norm", "gpt2"], norm=["layer_norm", "rms_norm"]), TOKENS)


def test_every_kind_is_found_by_its_file() -> None:
    assert {"factory", "model", "scheme"} <= set(variants.names())
    assert [variants.kind(parse(t, "variant")) for t in ("hyper:lanes=4", "gpt-oss", "net.py:make")] == ["scheme", "model", "factory"]
    clash = [n for n in models.names() if variants.load("scheme").takes(parse(n, "variant"))]
    assert clash == [], "a name of two kinds would hide one of them"


class Reads(nn.Module):
    """Says at every place what stands at the next one: the answer."""

    def __init__(self, vocabulary: int, classes: int) -> None:
        super().__init__()
        self.table, self.classes = nn.Embedding(vocabulary, classes), classes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.table(x.roll(-1, 1))
        return y


def test_a_model_that_reads_the_answer_is_refused(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "reads.py"
    file.write_text("import torch\nfrom torch import nn\n\n\nclass Reads(nn.Module):\n    def __init__(self, vocabulary, classes):\n"
                    "        super().__init__()\n        self.table = nn.Embedding(vocabulary, classes)\n\n    def forward(self, x):\n"
                    "        return self.table(x.roll(-1, 1))\n")
    own = arm(name="reads", scheme=None, factory=f"{file}:Reads")
    with pytest.raises(StudyError, match="variant reads: its output at a token depends on later tokens, which are the answer in task copy"):
        check(own, TOKENS)
    file.write_text(file.read_text().replace("x.roll(-1, 1)", "x"))
    import sys
    del sys.modules["_skipway_target_reads"]
    check(own, TOKENS)


def test_a_model_trains_in_a_study(tmp_path: pathlib.Path) -> None:
    study = lab.Study(task="copy:symbols=4,length=3", variants=["gpt2", "gpt2:scheme=none"], depth=1, width=16, heads=2, batch=4, steps=8, lr=1e-2,
                      seeds=1, probes=2)
    record = lab.run(study, tmp_path / "s", workers=1)
    states = {t["arm"]: (t["state"], len(t["depths"]), len(t["readouts"])) for t in record["trials"]}
    assert states == {"gpt2": ("finished", 4, 2), "gpt2:scheme=none": ("finished", 4, 2)}, "depth and readout, with and without a join"
    assert record["arms"][0]["model"] == "gpt2" and record["arms"][0]["wiring"]["schema"] == "skipway.wiring/1"
    assert replace(made("gpt2"), name="x").kind == "model"
