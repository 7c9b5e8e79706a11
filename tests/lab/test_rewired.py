"""A given model as a variant, with its joins as they are and rewired."""

import pathlib

import pytest
import torch
from small import arm

from skipway import lab
from skipway._errors import SkipwayError, StudyError
from skipway.lab import tasks, variants
from skipway.lab._arms import wanted
from skipway.lab._model import build, check
from skipway.lab._names import parse

TOKENS = tasks.build("copy")

NET = '''
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, vocabulary=64):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, 16)
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(2))
        self.maps = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.head = nn.Linear(16, vocabulary)

    def forward(self, ids):
        x = self.embed(ids)
        for norm, map in zip(self.norms, self.maps):
            x = x + map(norm(x))
        return self.head(x)

def make():
    return Net(), (torch.zeros(1, 4, dtype=torch.long),)
'''


@pytest.fixture
def net(tmp_path: pathlib.Path) -> str:
    (tmp_path / "net_of_base.py").write_text(NET)
    return f"{tmp_path}/net_of_base.py:make"


def rewired(text: str, model: str | None) -> object:
    named = parse(text, "variant")
    return arm(name=text, variant=text, scheme=None, kind=variants.kind(named), model=model, **variants.load("rewired").fields(named))


def test_the_base_and_its_edits_start_alike(net: str) -> None:
    base, edited = build(rewired("base", net), TOKENS, 3), build(rewired("base+rezero", net), TOKENS, 3)
    other = build(rewired("base", net), TOKENS, 4)
    own = dict(base.named_parameters())
    assert all(torch.equal(p, own[n]) for n, p in edited.named_parameters() if n in own)
    assert {n for n, _ in edited.named_parameters()} - set(own) == {f"model.skip_{k}.0.scheme.scale" for k in range(2)}
    assert not all(torch.equal(p, own[n]) for n, p in other.named_parameters())
    ids = TOKENS.batch("train", 0, 0, 2).inputs
    x = base.model.embed(ids)                               # rezero starts as the identity
    torch.testing.assert_close(edited(ids), base.model.head(x)[..., :TOKENS.classes])


def test_an_action_with_options(net: str) -> None:
    half = build(rewired("base+scale:branch=0.5", net), TOKENS, 0)
    check(rewired("base+scale:branch=0.5", net), TOKENS)
    ids = TOKENS.batch("train", 0, 0, 2).inputs
    inner = half.model
    x = inner.embed(ids)
    for norm, mapped in zip(inner.norms, inner.maps, strict=True):
        x = x + 0.5 * mapped(norm(x))
    torch.testing.assert_close(half(ids), inner.head(x)[..., :TOKENS.classes])


@pytest.mark.parametrize(("text", "model", "part"), [
    ("base", None, "which model is the base? Give --model"), ("base+rezro", "net", "unknown edit of a base 'rezro'; did you mean rezero"),
    ("base:x=1", "net", "the base itself has no options"), ("base+lanes:n=2,scheme=frac", "net", "lanes knows how to start hyper"),
    ("base+scale:brnch=2", "net", "unexpected keyword argument 'brnch'"), ("base", "hf:nowhere", "--model hf:nowhere")])
def test_a_wrong_variant(text: str, model: str | None, part: str, net: str) -> None:
    with pytest.raises(SkipwayError) as error:
        build(rewired(text, net if model == "net" else model), TOKENS, 0)
    assert part in str(error.value) and "\n" not in str(error.value)


def test_a_study_of_a_base(net: str, tmp_path: pathlib.Path) -> None:
    study = lab.Study(task="copy:symbols=4,length=3", model=net, variants=["base", "base+layer_scale:init=0.1"], batch=4, steps=8, lr=1e-2, seeds=1,
                      probes=2)
    record = lab.run(study, tmp_path / "s", workers=1)
    assert {t["arm"]: t["state"] for t in record["trials"]} == {"base": "finished", "base+layer_scale:init=0.1": "finished"}
    first, second = record["arms"]
    assert second["parameters"] - first["parameters"] == 32 and first["paired"] == first["parameters"] == second["paired"]


def test_a_task_that_the_model_does_not_fit(net: str) -> None:
    with pytest.raises(StudyError, match="fails on the inputs of task mlp_depth"):
        build(rewired("base", net), tasks.build("mlp_depth"), 0)


def test_a_model_that_no_variant_stands_on(net: str) -> None:
    with pytest.raises(StudyError, match=r"--model .*:make: none of the variants stands on it; take base or base\+ablate, or leave model out"):
        wanted(lab.Study(task="copy", model=net, variants=["pre_norm", "none"]), TOKENS)
