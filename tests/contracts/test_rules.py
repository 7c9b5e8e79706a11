"""Every rule keeps its contract: a page to read, a code of its own, a bad example that it names and a good one that nothing names."""

import dataclasses
import re
from types import ModuleType
from typing import Any

import pytest
import torch

from skipway import _registry

PACKAGE = "skipway.rules"
SECTIONS = ("What it does", "Why it matters", "Fires on", "Quiet on", "What to do")
NAMES = _registry.names(PACKAGE)
every_rule = pytest.mark.parametrize("name", NAMES)


def rule(name: str) -> ModuleType:
    return _registry.load(PACKAGE, name)


def findings(example: Any) -> tuple[Any, ...]:
    import skipway

    options = dict(example.options)
    if "expect" in options:
        options["expect"] = skipway.Expect(**options["expect"])
    return skipway.check(example.model, *example.args, **options).findings


def told(found: tuple[Any, ...]) -> list[str]:
    return [f"{f.severity} {f.code} at {f.where!r}: {f.message}" for f in found]


def test_there_are_rules() -> None:
    assert len(NAMES) >= 28


@every_rule
def test_docstring_names_the_rule_and_has_its_sections(name: str) -> None:
    doc = rule(name).__doc__ or ""
    first, _, rest = doc.partition("\n")
    slug, _, summary = first.partition(": ")
    assert slug == name
    assert summary.endswith(".")
    heads = [line for line in rest.splitlines() if line and not line.startswith(" ")]
    assert tuple(heads) == SECTIONS
    bodies = re.split(r"^(?:" + "|".join(SECTIONS) + r")$", rest, flags=re.M)[1:]
    assert all(len(body.split()) >= 5 for body in bodies)


@every_rule
def test_code_stage_and_severity(name: str) -> None:
    module = rule(name)
    assert re.fullmatch(r"SKW\d{3}", module.CODE)
    assert module.STAGE in ("graph", "values", "train")
    assert module.SEVERITY in ("note", "warning", "error")


def test_codes_are_unique() -> None:
    codes = [rule(name).CODE for name in NAMES]
    assert sorted(codes) == sorted(set(codes))


@every_rule
@pytest.mark.parametrize("kind", ["bad", "good"])
def test_examples_say_what_they_show_and_run_alike_twice(name: str, kind: str) -> None:
    make = getattr(rule(name), kind)
    assert make.__doc__ and make.__doc__.endswith(".")
    outputs = []
    for _ in range(2):
        torch.manual_seed(7)                # an example that leaves its own seed out shows here
        torch.rand(len(outputs) + 1)
        example = make()
        with torch.no_grad():
            outputs.append(example.model(*example.args))
    torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=0, equal_nan=True)


@every_rule
def test_bad_example_is_named_at_its_place(name: str) -> None:
    module = rule(name)
    example = module.bad()
    found = findings(example)
    named = [f for f in found if f.code == module.CODE]
    assert named, f"{module.CODE} is silent on its bad example; found {told(found) or 'nothing'}"
    assert any(example.where in f.where for f in named), f"want {example.where!r}; found {told(tuple(named))}"
    assert all(f.rule == name for f in named)
    assert module.SEVERITY in {f.severity for f in named}


@every_rule
def test_good_example_is_clean(name: str) -> None:
    module = rule(name)
    found = findings(module.good())
    assert not told(tuple(f for f in found if f.code == module.CODE or f.severity in ("warning", "error")))


MENDING = [name for name in NAMES if hasattr(rule(name), "mend")]


@pytest.mark.parametrize("name", MENDING)
def test_a_rewire_mends_what_the_rule_finds(name: str) -> None:
    """The steps that the rule gives for its own bad example, carried out as they are written: nothing is found afterwards."""
    import skipway
    example = rule(name).bad()
    found = [f for f in findings(example) if f.code == rule(name).CODE]
    steps = [s for f in found if (s := rule(name).mend(f.where, f.values)) is not None]
    assert steps, told(tuple(found))
    model = example.model.to(getattr(torch, example.options.get("dtype", "float32")))
    args = tuple(a.to(next(model.parameters()).dtype) if a.is_floating_point() else a for a in example.args)
    example = dataclasses.replace(example, model=model, args=args)
    plan = eval(f"skipway.rewire(model, *args){''.join(dict.fromkeys(steps))}", {"skipway": skipway, "model": model, "args": args})
    edit = plan.apply()
    assert [f for f in findings(example) if f.code == rule(name).CODE] == []
    edit.undo()
    assert [f.where for f in findings(example) if f.code == rule(name).CODE] == [f.where for f in found]
