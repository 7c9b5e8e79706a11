"""Losses by name against the same loss written out, and what does not fit one."""

import pathlib
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from skipway._errors import TargetError
from skipway.targets._data import Data
from skipway.targets._given import Given
from skipway.targets._loss import logits_of, objective
from skipway.targets._seed import seeded

IDS = torch.randint(0, 20, (3, 7), generator=torch.Generator().manual_seed(1))
LOGITS = torch.randn(3, 7, 20, generator=torch.Generator().manual_seed(2))


class Out(dict[str, Any]):
    """As transformers' outputs: fields by name and as attributes."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return self[name]


def test_next_token() -> None:
    loss = objective("next-token", Data(Given((), {"input_ids": IDS}), "")).call(Out(logits=LOGITS))
    chances = LOGITS.log_softmax(-1)
    by_hand = -sum(float(chances[b, t, IDS[b, t + 1]]) for b in range(3) for t in range(6)) / 18
    assert float(loss) == pytest.approx(by_hand, rel=1e-6)


def test_next_token_leaves_out_what_the_mask_leaves_out() -> None:
    mask = torch.ones_like(IDS)
    mask[:, 4:] = 0
    loss = objective("next-token", Data(Given((), {"input_ids": IDS, "attention_mask": mask}), "")).call((LOGITS, None))
    assert float(loss) == pytest.approx(float(F.cross_entropy(LOGITS[:, :3].flatten(0, 1), IDS[:, 1:4].flatten())), rel=1e-6)


def test_next_token_of_a_decoder() -> None:
    data = Data(Given((), {"input_ids": IDS[:, :2], "decoder_input_ids": IDS}), "")
    assert float(objective("next-token", data).call(LOGITS)) == pytest.approx(
        float(F.cross_entropy(LOGITS[:, :-1].flatten(0, 1), IDS[:, 1:].flatten())), rel=1e-6)


def test_masked_token() -> None:
    ids = torch.randint(0, 20, (8, 500), generator=torch.Generator().manual_seed(3))
    found = objective("masked-token", Data(Given((), {"input_ids": ids}), "", mask=25, special=frozenset({0, 1})))
    hidden = found.given.kwargs["input_ids"]
    changed = hidden != ids
    assert bool((hidden[changed] == 25).all()) and not bool((changed & (ids < 2)).any())
    assert 0.12 < float(changed.sum() / (ids >= 2).sum()) < 0.18
    logits = torch.randn(8, 500, 30, generator=torch.Generator().manual_seed(4))
    assert float(found.call(logits)) == pytest.approx(float(F.cross_entropy(logits[changed], ids[changed])), rel=1e-5)
    assert found.notes == (f"masked-token: {int(changed.sum())} of 4000 tokens hidden",)


def test_the_seed_says_which_tokens_are_hidden() -> None:
    data = Data(Given((IDS,)), "", mask=19)
    made = []
    for seed in (0, 0, 1):
        with seeded(seed):
            made.append(objective("masked-token", data).given.args[0])
    assert torch.equal(made[0], made[1]) and not torch.equal(made[0], made[2])


def test_a_short_text_has_one_hidden_token_a_row() -> None:
    hidden = objective("masked-token", Data(Given((torch.tensor([[0, 5], [0, 6]]),)), "", mask=9, special=frozenset({0}))).given.args[0]
    assert hidden.tolist() == [[0, 9], [0, 9]]


def test_classification() -> None:
    labels = torch.tensor([2, 0, 1])
    logits = torch.randn(3, 4, generator=torch.Generator().manual_seed(5))
    loss = objective("classification", Data(Given((torch.zeros(3, 1),)), "", labels)).call(Out(logits=logits))
    assert float(loss) == pytest.approx(float(F.cross_entropy(logits, labels)), rel=1e-6)


def test_a_function_of_the_output_and_of_the_inputs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "losses.py").write_text("def one(out):\n    return out.sum()\n\ndef two(out, batch):\n"
                                        "    return out.sum() * batch['x'].sum() + batch['labels'].sum()\n\n"
                                        "def bad(out):\n    return out.none\n\nthree = 3\n")
    data = Data(Given((), {"x": torch.tensor([2.0, 3.0])}), "", torch.tensor([7]))
    assert float(objective("losses.py:one", data).call(torch.ones(4))) == 4
    assert float(objective("losses.py:two", data).call(torch.ones(4))) == 27
    with pytest.raises(TargetError, match=r"losses\.py:8: --loss losses\.py:bad failed: AttributeError"):
        objective("losses.py:bad", data).call(torch.ones(4))
    with pytest.raises(TargetError, match=r"got int, want a function of the model's output"):
        objective("losses.py:three", data)


def test_logits() -> None:
    assert logits_of(Out(last=IDS, logits=LOGITS), "x") is LOGITS and logits_of([LOGITS, IDS], "x") is LOGITS


@pytest.mark.parametrize(("loss", "given", "labels", "out", "part"), [
    ("cross", Given((IDS,)), None, LOGITS, "got 'cross', want one of next-token, masked-token, classification or file.py:function"),
    ("next-token", Given((torch.zeros(2, 3),)), None, LOGITS, "the inputs hold no tokens of shape (rows, tokens), got input 0 float32[2, 3]"),
    ("next-token", Given((IDS,)), None, LOGITS[:, :3], "the logits have the shape (3, 3, 20), want (3, 7, 'vocabulary')"),
    ("next-token", Given((IDS,)), None, Out(last_hidden_state=LOGITS), "the model's output is Out with last_hidden_state and has no logits"),
    ("masked-token", Given((IDS,)), None, LOGITS, "no mask token is known for this data"),
    ("classification", Given((IDS,)), None, LOGITS, "the data has no labels; add 'labels' to the .npz"),
    ("classification", Given((IDS,)), torch.tensor([0, 1, 4]), LOGITS[:, 0, :4], "the labels go from 0 to 4, and the model has 4 classes"),
    ("classification", Given((IDS,)), torch.tensor([0, 1]), LOGITS[:, 0, :4], "the logits have the shape (3, 4) and the labels (2,)"),
])
def test_what_does_not_fit(loss: str, given: Given, labels: Tensor | None, out: Any, part: str) -> None:
    with pytest.raises(TargetError) as caught:
        objective(loss, Data(given, "", labels)).call(out)
    assert part in str(caught.value) and "\n" not in str(caught.value)
