"""Registries: the members of a package are its files, loaded on first use; other distributions add members."""

import importlib.metadata
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

import skipway
from skipway import _registry

RULES = "skipway.rules"
HOME = pathlib.Path(skipway.__file__).parent


@pytest.fixture
def package(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    home = tmp_path / "planted_members"
    home.mkdir()
    (home / "__init__.py").write_text("")
    (home / "_base.py").write_text("raise RuntimeError('not a member')")
    (home / "first_one.py").write_text("VALUE = 1")
    (home / "second.py").write_text("raise RuntimeError('loaded too early')")
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    yield "planted_members"
    forget()
    for name in [n for n in sys.modules if n.startswith("planted_members")]:
        del sys.modules[name]


def forget() -> None:
    for function in (_registry.names, _registry.load, _registry._added):
        function.cache_clear()


def test_members_are_the_files(package: str) -> None:
    assert _registry.names(package) == ("first-one", "second")
    assert "planted_members.first_one" not in sys.modules, "listing imports nothing"


def test_a_member_is_loaded_on_first_use_and_once(package: str) -> None:
    first = _registry.load(package, "first-one")
    assert first.VALUE == 1 and _registry.load(package, "first-one") is first
    assert "planted_members.second" not in sys.modules


def test_an_unknown_member_names_the_known_ones(package: str) -> None:
    for name in ("none", "first_one", "_base"):
        with pytest.raises(KeyError, match=f"planted_members has no member '{name}'; it has first-one, second"):
            _registry.load(package, name)


class Added:
    def __init__(self, name: str, value: object) -> None:
        self.name, self.value = name, value

    def load(self) -> object:
        return self.value


def test_other_distributions_add_members(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = sys.modules[__name__]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [Added("extra", mine)] if group == package else [])
    assert _registry.names(package) == ("extra", "first-one", "second")
    assert _registry.load(package, "extra") is mine
    assert _registry.load(package, "first-one").VALUE == 1


def test_every_rule_file_is_a_member_and_nothing_else() -> None:
    files = {f.stem.replace("_", "-") for f in (HOME / "rules").glob("*.py") if not f.stem.startswith("_")}
    assert files <= set(_registry.names(RULES)) and len(files) >= 28
    assert list(_registry.names(RULES)) == sorted(_registry.names(RULES))
    for name in files:
        assert _registry.load(RULES, name).__name__ == f"skipway.rules.{name.replace('-', '_')}"


def test_names_are_listed_without_torch() -> None:
    code = "import sys; from importlib.util import find_spec; sys.modules['skipway'] = m = type(sys)('skipway'); " \
           f"m.__path__ = [{str(HOME)!r}]; from skipway import _registry; print(len(_registry.names('skipway.report')), 'torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert int(out[0]) >= 2 and out[1] == "False"
