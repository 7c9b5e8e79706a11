"""Study files: good ones are read, wrong ones are told with line and field."""

import pathlib

import pytest

from skipway._errors import StudyError
from skipway.lab._study import Study
from skipway.lab._study_file import make, read

GOOD = """\
task: copy:length=8
variants:
  - none:normed=true
  - hyper:lanes=4
  - {name: deep, variant: pre_norm, depth: 12, lr: [1e-3]}
depth: [2, 6]
lr: [3e-4, 1e-3]
seeds: 5
clip: none
"""


def put(folder: pathlib.Path, text: str) -> pathlib.Path:
    file = folder / "study.yaml"
    file.write_text(text)
    return file


def test_a_good_file(tmp_path: pathlib.Path) -> None:
    study = read(put(tmp_path, GOOD), seeds="2")
    assert (study.task, study.depth, study.lr, study.seeds, study.clip) == ("copy:length=8", [2, 6], [3e-4, 1e-3], 2, "none")
    deep = study.variants[2]
    assert not isinstance(deep, str) and (deep.name, deep.depth, deep.lr) == ("deep", 12, [1e-3])
    assert Study(**study.model_dump()) == study


@pytest.mark.parametrize(("old", "new", "line", "part"), [
    ("seeds: 5", "seeds: -5", 8, "seeds: want greater than 0, got -5"),
    ("seeds: 5", "sedes: 5", 8, "sedes: no such field; did you mean seeds?"),
    ("lr: [3e-4, 1e-3]", "lr: [3e-4, fast]", 7, "lr.1: want a valid number, unable to parse string as a number, got 'fast'"),
    ("depth: 12", "dpeth: 12", 5, "variants.2.dpeth: no such field; did you mean depth?"),
    ("depth: [2, 6]", "depth: []", 6, "depth: want a value, or a list of at least one"),
    ("clip: none", "clip: none\nseeds: 2", 10, "seeds: it is given twice, first in line 8"),
    ("clip: none", "norm: batch", 9, "norm: want 'layer_norm' or 'rms_norm', got 'batch'"),
    ("seeds: 5", "seeds: 5\nuntil_decided: true\nmax_seeds: 3", 1, "until_decided starts with 5 seeds and ends with max_seeds 3"),
    ("clip: none", "clip: [", 10, "this is no YAML"),
])
def test_a_wrong_field_is_told_with_its_line(tmp_path: pathlib.Path, old: str, new: str, line: int, part: str) -> None:
    assert old in GOOD
    file = put(tmp_path, GOOD.replace(old, new))
    with pytest.raises(StudyError) as error:
        read(file)
    said = str(error.value)
    assert said.startswith(f"{file}:{line}: ") and part in said and "\n" not in said


@pytest.mark.parametrize(("text", "part"), [("- a\n", "want fields such as task"), ("", "got nothing")])
def test_no_study(tmp_path: pathlib.Path, text: str, part: str) -> None:
    with pytest.raises(StudyError, match=part):
        read(put(tmp_path, text))


def test_no_file_and_no_text(tmp_path: pathlib.Path) -> None:
    with pytest.raises(StudyError, match="No such file"):
        read(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StudyError, match="no UTF-8 text"):
        read(tmp_path / "bytes.yaml")


def test_several_wrong_fields_are_counted() -> None:
    with pytest.raises(StudyError, match="and 1 more field is wrong"):
        make({"seeds": 0, "steps": 0})
