"""Every task of the registry keeps its contract, and each one's targets are what it says they are."""

import math
import pathlib

import pytest
import torch

from skipway._errors import SkipwayError, StudyError
from skipway.lab import tasks
from skipway.lab._plan import fingerprint
from skipway.lab.tasks import IGNORE, Batch, Task

NAMES = tasks.names()


@pytest.fixture(scope="module", params=NAMES)
def task(request: pytest.FixtureRequest) -> Task:
    return tasks.build(request.param)


def test_data_depend_on_seed_step_and_split_alone(task: Task) -> None:
    first = task.batch("train", 1, 2, 16)
    torch.manual_seed(99)
    torch.rand(5)
    task.batch("held_out", 0, 0, 4)
    again = tasks.build(task.name()).batch("train", 1, 2, 16)
    assert torch.equal(first.inputs, again.inputs) and torch.equal(first.targets, again.targets)
    for other in (task.batch("train", 2, 2, 16), task.batch("train", 1, 3, 16), task.batch("held_out", 1, 2, 16)):
        assert not torch.equal(first.inputs, other.inputs)
    held = [task.batch("held_out", seed, 0, 16).inputs for seed in (0, 7)]
    assert torch.equal(*held)


def test_shapes_and_targets(task: Task) -> None:
    batch = task.batch("train", 0, 0, 6)
    kept = batch.targets != IGNORE
    assert batch.targets.dtype == torch.int64 and bool(kept.any()) and bool(((batch.targets[kept] >= 0) & (batch.targets[kept] < task.classes)).all())
    if task.features is None:
        assert batch.inputs.shape == (6, task.length) and task.vocabulary is not None and int(batch.inputs.max()) < task.vocabulary
        assert batch.targets.shape in {(6, task.length), (6,)}
    else:
        assert batch.inputs.shape[-1] == task.features and batch.inputs.is_floating_point()
    width = 8
    out = task.head(width)(task.embed(width)(batch.inputs))
    assert out.shape == (*batch.targets.shape, task.classes) and bool(torch.isfinite(task.loss(out, batch)))


def test_the_loss_of_a_blind_guess_and_of_the_right_answer(task: Task) -> None:
    batch = task.batch("held_out", 0, 0, 32)
    blind = torch.zeros(*batch.targets.shape, task.classes)
    assert float(task.loss(blind, batch)) == pytest.approx(task.chance(), rel=1e-5)
    right = 100.0 * torch.nn.functional.one_hot(batch.targets.clamp_min(0), task.classes).float()
    assert float(task.loss(right, batch)) < 1e-6 and task.score(right, batch) == 1.0
    wrong = Batch(batch.inputs, torch.where(batch.targets < 0, batch.targets, (batch.targets + 1) % task.classes))
    assert task.score(right, wrong) == 0.0


def test_defaults_are_fields_of_a_study(task: Task) -> None:
    from skipway.lab import Study
    assert Study(task=task.name(), **task.defaults).steps == task.defaults["steps"]
    assert task.defaults["width"] % task.defaults["heads"] == 0


def test_copy_is_answered_by_looking_back() -> None:
    task = tasks.build("copy:symbols=5,length=4")
    batch = task.batch("train", 0, 0, 8)
    assert bool((batch.targets[:, :4] == IGNORE).all()) and torch.equal(batch.targets[:, 4:], batch.inputs[:, :4])
    assert bool((batch.inputs[:, 4] == 5).all()) and math.isclose(task.chance(), math.log(5))


def test_recall_is_answered_by_the_pair() -> None:
    task = tasks.build("recall:pairs=4,keys=6,values=5")
    for row, targets in zip(*task.batch("train", 0, 0, 20)):
        pairs = dict(zip(row[0:8:2].tolist(), (row[1:8:2] - 6).tolist()))
        asked = [i for i in range(15) if targets[i] != IGNORE]
        assert asked == [8, 10, 12, 14] and len(pairs) == 4 and all(pairs[int(row[i])] == int(targets[i]) for i in asked)


def test_induction_is_answered_by_what_followed_the_trigger() -> None:
    task = tasks.build("induction:symbols=6,length=9")
    for row, targets in zip(*task.batch("train", 0, 0, 50)):
        places = (row == 6).nonzero().flatten().tolist()
        assert len(places) == 2 and places[1] == 8 and int(targets[-1]) == int(row[places[0] + 1]) and bool((targets[:-1] == IGNORE).all())


def test_modular_holds_sums_out() -> None:
    task = tasks.build("modular:modulus=7,train=0.6")
    seen = {split: {tuple(r[:2].tolist()) for s in range(20) for r in task.batch(split, s, s, 64).inputs} for split in ("train", "held_out")}
    assert not seen["train"] & seen["held_out"] and len(seen["train"] | seen["held_out"]) == 49
    batch = task.batch("train", 0, 0, 30)
    assert torch.equal(batch.targets[:, -1], batch.inputs[:, :2].sum(1) % 7)


def test_text_is_the_next_byte_and_files_are_held_out(tmp_path: pathlib.Path) -> None:
    library = tasks.build("text")
    assert all(len(p) > 300_000 for p in library.parts.values()) and b"def " in bytes(library.parts["held_out"][:100_000].tolist())
    file = tmp_path / "own.txt"
    file.write_bytes(bytes(range(200)) * 5)
    own = tasks.build("text:length=8", str(file))
    batch = own.batch("train", 0, 0, 5)
    assert torch.equal(batch.targets, (batch.inputs + 1) % 200) and len(own.parts["held_out"]) == 100
    assert fingerprint(own) != fingerprint(library)


def test_digits_and_spirals() -> None:
    digits = tasks.build("digits")
    inputs, labels = digits.rows["held_out"]
    assert len(labels) == 359 and len(digits.rows["train"].targets) == 1438 and float(inputs.min()) >= 0 and float(inputs.max()) == 1.0
    spiral = tasks.build("mlp_depth")
    points = spiral.batch("train", 0, 0, 4000)
    assert sorted(torch.bincount(points.targets).tolist())[0] > 850


@pytest.mark.parametrize(("text", "data", "part"), [
    ("cpoy", None, "unknown task 'cpoy'; did you mean copy"),
    ("copy:lenght=3", None, "task copy has no option 'lenght'; did you mean length?"),
    ("copy:length=x", None, "length is 'x'; want a value like 8"),
    ("copy:length=0", None, "length is 0; want 1 or more"),
    ("recall:pairs=9,keys=3", None, "at least as many keys as pairs"),
    ("modular:train=2.0", None, "want a share between 0 and 1"),
    ("digits:patch=3", None, "want 1, 2, 4 or 8"),
    ("copy", "book.txt", "task copy reads no data file"),
    ("text", "no/such.txt", "--data no/such.txt: No such file"),
    ("none.py:task", None, "none.py: no such file"),
])
def test_bad_tasks(text: str, data: "str | None", part: str) -> None:
    with pytest.raises(SkipwayError) as error:
        tasks.build(text, data)
    assert part in str(error.value) and "\n" not in str(error.value)


def test_a_data_file_that_is_too_short(tmp_path: pathlib.Path) -> None:
    (tmp_path / "short.txt").write_text("abc" * 40)
    with pytest.raises(StudyError, match=r"too short: its smaller part has 12 bytes, and a row takes 65"):
        tasks.build("text", str(tmp_path / "short.txt"))


OWN = """
import torch
from torch import nn
from skipway.lab.tasks import Batch, Task


class Sign(Task):
    sublayers = ('dense',)

    def build(self, features: int = 3):
        self.classes, self.features = 2, features

    def draw(self, split, generator, size):
        x = torch.randn(size, self.features, generator=generator)
        return Batch(x, (x.sum(1) > 0).long())

    def embed(self, width):
        return nn.Linear(self.features, width)


ready = Sign(features=4)
number = 3


def made(features=5):
    return Sign(features=features)


def other():
    return 1
"""


def test_a_task_of_ones_own(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    assert tasks.build(f"{file}:Sign").features == 3 and tasks.build(f"{file}:Sign:features=6").features == 6
    assert tasks.build(f"{file}:ready").features == 4 and tasks.build(f"{file}:made:features=7").features == 7
    for name, part in (("number", "got int, want a Task"), ("other", "it returned int, want a Task"), ("nothing", "has no 'nothing'"),
                       ("ready:features=2", "takes neither options nor data")):
        with pytest.raises(SkipwayError, match=part):
            tasks.build(f"{file}:{name}")
