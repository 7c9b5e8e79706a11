"""Bench scripts as modules, for tests that hold their figures, and the packages that hold trained models."""

import importlib.util
import os
import pathlib
import sys
from types import ModuleType

import pytest

ROOT = pathlib.Path(__file__).parents[1]


def bench(name: str) -> ModuleType:
    """bench/<name>.py."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "bench" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def trained(name: str) -> pathlib.Path:
    """The folder or file of a trained model; the test skips where its package is missing, and fails where CI is set."""
    weights = bench("_weights")
    found: pathlib.Path | None = weights.place(name)
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{weights.PACKAGES[name][0]} is not installed; {weights.INSTALL}")
    for package in ("gguf", "accelerate") if name == "smollm2" else ():
        pytest.importorskip(package)
    return found
