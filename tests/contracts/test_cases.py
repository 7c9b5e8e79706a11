"""Public bug reports as small models: faults are named in their place, repaired twins and look-alikes pass.

The cases lie beside a checkout, in ../shared/cases; without them these tests are skipped.
"""

import importlib.util
import pathlib
from functools import cache
from types import ModuleType
from typing import Any

import pytest

FOLDER = pathlib.Path(__file__).parents[3] / "shared" / "cases"
PATHS = sorted(FOLDER.glob("[np][0-9]*.py"))

pytestmark = pytest.mark.skipif(not PATHS, reason="no ../shared/cases beside this checkout")
every_case = pytest.mark.parametrize("path", PATHS or [pathlib.Path("none")], ids=lambda path: path.stem)


def loaded(path: pathlib.Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"shared_cases_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def scorer() -> ModuleType:
    return loaded(FOLDER / "score.py")


def graph_kinds() -> set[str]:
    return {kind for rule in scorer().RULES if rule["stage"] == "graph" for kind in rule["kinds"]}


def alarms(found: Any) -> list[str]:
    return [f"{f.severity} {f.code} at {f.where!r}: {f.message}" for f in found if f.severity in ("error", "warning")]


@every_case
def test_verdict(path: pathlib.Path) -> None:
    case = loaded(path)
    if case.EXPECT["verdict"] != "silent" and case.EXPECT["kind"] not in graph_kinds():
        pytest.skip(f"{case.EXPECT['kind']} needs more than the graph")
    assert scorer().score(path) == []


@every_case
def test_repaired_twin_passes(path: pathlib.Path) -> None:
    case = loaded(path)
    if not hasattr(case, "build_fixed"):
        pytest.skip("this case has no repaired twin")
    assert alarms(scorer().run(case.EXPECT["id"], case, case.build_fixed)) == []
