"""How tasks and variants are written."""

import pytest

from skipway._errors import StudyError
from skipway.lab._names import parse, split


def test_split_keeps_options_with_their_variant() -> None:
    assert split("pre_norm, hyper:lanes=4,dynamic=false,none") == ["pre_norm", "hyper:lanes=4,dynamic=false", "none"]
    assert split("a.py:make,b.py:make:width=3,depth=2") == ["a.py:make", "b.py:make:width=3,depth=2"]
    assert split("a:x=1,b:y=2") == ["a:x=1", "b:y=2"] and split("") == []


def test_parse() -> None:
    assert parse("hyper:lanes=4,dynamic=false,rate=1e-3,kind=x,limit=none", "variant") == (
        "hyper", {"lanes": 4, "dynamic": False, "rate": 1e-3, "kind": "x", "limit": None})
    assert parse("dir/net.py:make:depth=3", "variant") == ("dir/net.py:make", {"depth": 3}) and parse("net.py:make", "variant").file
    assert str(parse("hyper:lanes=4,dynamic=false", "variant")) == "hyper:lanes=4,dynamic=false"


@pytest.mark.parametrize(("text", "part"), [
    ("net.py", "name the object of the file"), ("a:b:c", "want name, name:key=value"), ("a:lanes", "got 'lanes', want key=value"), ("", "want name"),
    ("a:lanes=", "want key=value"), ("net.py:9x", "name the object"),
])
def test_bad_names(text: str, part: str) -> None:
    with pytest.raises(StudyError, match="variant") as error:
        parse(text, "variant")
    assert part in str(error.value)
