"""Inputs that the user gives."""

import os
import pathlib

import pytest
import torch

from skipway._errors import TargetError
from skipway.targets._given import given_inputs, parse

DATA = pathlib.Path(__file__).parents[1] / "data"


@pytest.mark.parametrize(("text", "name", "dtype", "shape"), [
    ("x=float32[2,3,224,224]", "x", torch.float32, (2, 3, 224, 224)),
    ("float64[2, 3]", None, torch.float64, (2, 3)),
    (" y = bfloat16[1]", "y", torch.bfloat16, (1,)),
    ("mask=bool[2,4]", "mask", torch.bool, (2, 4)),
    ("scalar=float32[]", "scalar", torch.float32, ()),
    ("ids=int64[1,16]<1000", "ids", torch.int64, (1, 16)),
    ("int32[4] < 7", None, torch.int32, (4,)),
])
def test_parse(text: str, name: str | None, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    found, tensor = parse(text)
    assert (found, tensor.dtype, tuple(tensor.shape)) == (name, dtype, shape)
    assert torch.equal(parse(text)[1], tensor)


def test_integers_stay_below_their_limit() -> None:
    _, tensor = parse("int64[1000]<3")
    assert set(tensor.tolist()) == {0, 1, 2}


@pytest.mark.parametrize(("text", "part"), [
    ("x", "not understood"), ("x=float32", "not understood"), ("x=float32[2,a]", "not understood"), ("=float32[2]", "not understood"),
    ("x=float33[2]", "got dtype 'float33', want one of float64"), ("ids=int64[1,16]", "write ids=int64[1,16]<1000"),
    ("ids=int64[2]<0", "integers need"),
    ("x=float32[2]<5", "a limit (<5) is for integers"),
])
def test_what_is_not_understood(text: str, part: str) -> None:
    with pytest.raises(TargetError) as caught:
        parse(text)
    assert part in str(caught.value) and repr(text) in str(caught.value)


def test_positional_and_named() -> None:
    given = given_inputs(["float32[2]", "y=float32[3]", "float32[4]"], None)
    assert given is not None
    assert [t.shape[0] for t in given.args] == [2, 4] and given.kwargs["y"].shape == (3,)
    assert given_inputs([], None) is None


def test_both_ways_or_a_name_twice() -> None:
    with pytest.raises(TargetError, match="want one of them"):
        given_inputs(["float32[2]"], "a.py:f")
    with pytest.raises(TargetError, match="'x' is given twice"):
        given_inputs(["x=float32[2]", "x=float32[3]"], None)


@pytest.mark.parametrize(("text", "part"), [
    ("right.py", "no function is named"), ("right.py:none", "has no 'none'"), ("right.py:no_tensors", "got str, int and no tensor among them"),
    ("right.py:fails", "right.py:66"), ("right.py:number", "got int, want a tensor"),
])
def test_bad_functions(text: str, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA)
    with pytest.raises(TargetError) as caught:
        given_inputs([], text)
    assert part in str(caught.value)
    assert os.getcwd() == str(DATA)
