"""Python targets: class, factory, instance, the file's only model, guesses of inputs, and every way in which they can be wrong."""

import os
import pathlib
from collections.abc import Iterator

import pytest
import torch

from skipway._errors import TargetError
from skipway.targets import resolve

DATA = pathlib.Path(__file__).parents[1] / "data"


@pytest.fixture(autouse=True)
def _folder() -> Iterator[None]:
    """Runs in tests/data, so that messages name short paths."""
    before = os.getcwd()
    os.chdir(DATA)
    yield
    os.chdir(before)


@pytest.mark.parametrize(("text", "blocks"), [("right.py:net", 4), ("right.py:Net", 4), ("right.py:make", 2), ("right.py", 4)])
def test_instance_class_factory_and_only_model(text: str, blocks: int) -> None:
    target = resolve(text)
    assert len(target.model.blocks) == blocks  # type: ignore[arg-type]
    assert target.name == text
    (ids,) = target.args
    assert ids.dtype is torch.int64 and ids.shape == (2, 16) and int(ids.max()) < 100
    assert target.notes == ("inputs: int64[2,16], guessed from embed (Embedding); --input says otherwise",)
    assert target.model(ids).shape == (2, 16, 100)
    assert target.shrunken() is None and not target.abstract


def test_a_factory_may_give_inputs() -> None:
    target = resolve("right.py:make_with_inputs")
    assert target.args[0].shape == (1, 5) and len(target.model.blocks) == 2  # type: ignore[arg-type]


def test_example_inputs_of_the_file() -> None:
    target = resolve("one_class.py")
    assert target.args[0].shape == (4, 3, 6)
    assert target.notes == ("inputs: example_inputs of the file",)


def test_dotted_module() -> None:
    target = resolve("one_class:Only")
    assert type(target.model).__name__ == "Only" and target.args[0].shape == (4, 3, 6)


def test_dotted_module_of_a_package() -> None:
    assert type(resolve("torch.nn:Identity", inputs=["float32[2,3]"]).model) is torch.nn.Identity


@pytest.mark.parametrize(("text", "shape"), [("odd_inputs.py:plain_vgg", (2, 3, 64, 64)), ("odd_inputs.py:one_layer", (2, 8, 5))])
def test_guess_from_the_first_layer(text: str, shape: tuple[int, ...]) -> None:
    target = resolve(text)
    assert target.args[0].shape == shape
    target.model(*target.args)


def test_inputs_from_a_function() -> None:
    assert resolve("right.py:make", inputs_from="right.py:inputs").args[0].shape == (3, 7)
    assert resolve("right.py:make", inputs_from="right.py:keyword_inputs").kwargs["ids"].shape == (3, 7)
    both = resolve("right.py:make", inputs_from="right.py:both_inputs")
    assert both.args[0].shape == (3, 7) and both.kwargs == {"flag": True}


@pytest.mark.parametrize(("text", "parts"), [
    ("nothing.py:net", ["nothing.py: no such file"]),
    ("rigth.py:net", ["rigth.py: no such file", "near it: right.py"]),
    ("no_such_module:net", ["no module named 'no_such_module'"]),
    ("right:nett", ["has no 'nett'", "net"]),
    ("right.py:nett", ["right.py:nett", "has no 'nett'", "net"]),
    ("right.py:number", ["got int, want a torch.nn.Module class"]),
    ("right.py:gives_number", ["calling it gave int, want a torch.nn.Module"]),
    ("right.py:fails", ["right.py:66: right.py:fails failed: ValueError: the factory's own failure"]),
    ("raises.py:net", ["raises.py:3: raises.py cannot be imported: RuntimeError: broken on;", "--debug"]),
    ("bad_syntax.py:net", ["bad_syntax.py:3: bad_syntax.py cannot be imported: SyntaxError"]),
    ("no_model.py", ["defines no torch.nn.Module class or instance", "no_model.py:make"]),
    ("odd_inputs.py", ["has 4 models (NeedsArguments, Two, Unknown, WrongShape)", "odd_inputs.py:NeedsArguments"]),
    ("odd_inputs.py:NeedsArguments", ["needs the arguments dim, depth", "def make(): return NeedsArguments(dim=..., depth=...)"]),
    ("odd_inputs.py:Unknown", ["cannot be guessed (forward takes signal, lengths)", '--input "signal=float32[2,16,64]"']),
    ("odd_inputs.py:Two", ["needs a, b and only 1 of them can be guessed"]),
    ("odd_inputs.py:empty", ["cannot be guessed", '--input "']),
    ("", ["neither a file nor a module name"]),
    ("what is this", ["neither a file nor a module name"]),
])
def test_bad_targets_get_one_line(text: str, parts: list[str]) -> None:
    with pytest.raises(TargetError) as caught:
        resolve(text)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_the_targets_own_error_is_kept() -> None:
    with pytest.raises(TargetError) as caught:
        resolve("right.py:fails")
    assert isinstance(caught.value.__cause__, ValueError)


def test_config_is_refused() -> None:
    with pytest.raises(TargetError, match="--config 'a=1' is for hf: targets"):
        resolve("right.py:net", config=["a=1"])


def test_inputs_are_the_same_in_two_runs() -> None:
    assert torch.equal(resolve("odd_inputs.py:one_layer").args[0], resolve("odd_inputs.py:one_layer").args[0])
