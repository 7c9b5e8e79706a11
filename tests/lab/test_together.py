"""Seeds in one stack: the numbers of trials by themselves, stops and kills, divergence of one, and what is refused."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from small import arm, facts, trial

from skipway import lab, schemes
from skipway._errors import StudyError
from skipway.lab import _checkpoint, _together, _trial, engines, tasks
from skipway.lab._optimizer import Optimizer
from skipway.lab._run import Stopped
from skipway.lab._store import Store
from skipway.lab.engines import Job
from skipway.lab.engines.together import stacks
from skipway.lab.records import Arm, Outcome, Trial

TASK = tasks.build("copy:symbols=4,length=3")
CLOSE = 1e-4            # largest relative difference of a loss after the few steps of these trials; what is measured is 2e-7
SMALL: dict[str, Any] = {"task": "copy:symbols=4,length=3", "depth": 1, "width": 8, "heads": 2, "batch": 4, "steps": 40, "lr": [1e-3, 1e-2],
                         "seeds": 3, "held_out": 1, "checkpoint": 6, "probes": [0, 40]}
NETS = """
import random
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, vocabulary, classes):
        super().__init__()
        self.table, self.out = nn.Embedding(vocabulary, 8), nn.Linear(8, classes)

    def forward(self, x):
        return self.out(self.inner(self.table(x)))

    def inner(self, h):
        return h


class Drops(Net):
    def inner(self, h):
        return nn.functional.dropout(h, 0.3, self.training)


class Asks(Net):
    def inner(self, h):
        return h if h.mean() > 0 else -h


class Draws(Net):
    def inner(self, h):
        return h * (1 + random.random())


class Keeps(Net):
    def __init__(self, vocabulary, classes):
        super().__init__(vocabulary, classes)
        self.fixed = torch.randn(8)

    def inner(self, h):
        return h * self.fixed


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0] * grad


class ByHand(Net):
    def inner(self, h):
        return Square.apply(h)


class Padded(Net):
    def __init__(self, vocabulary, classes):
        super().__init__(vocabulary, classes)
        self.table = nn.Embedding(vocabulary, 8, padding_idx=0)


class Normed(Net):
    def __init__(self, vocabulary, classes):
        super().__init__(vocabulary, classes)
        self.norm = nn.BatchNorm1d(8)

    def inner(self, h):
        return self.norm(h.transpose(1, 2)).transpose(1, 2)


class Dies(Net):
    calls = 0

    def inner(self, h):
        self.calls += 1
        if self.calls > 30:
            raise RuntimeError("broken at last")
        return h
"""


def seeds(*numbers: int, name: str = "pre_norm") -> "list[Trial]":
    return [replace(trial(name), seed=s) for s in numbers]


def close(one: "Outcome | None", two: "Outcome | None") -> bool:
    """Whether all numbers agree but for rounding, and all else is equal."""
    assert one is not None and two is not None

    def plain(outcome: Outcome) -> Any:
        rows = [vars(r) for kind in (outcome.points, outcome.depths, outcome.readouts) for r in kind]
        return [outcome.state, outcome.step, outcome.reason, outcome.final, outcome.score, *(v for row in rows for v in row.values())]
    first, second = plain(one), plain(two)
    return len(first) == len(second) and all(a == pytest.approx(b, rel=CLOSE, abs=CLOSE) if isinstance(a, float) else a == b
                                             for a, b in zip(first, second, strict=True))


def numbers(found: "dict[int, Outcome] | None") -> str:
    """Everything of every seed that a stop must not change."""
    assert found is not None
    return repr({s: (o.state, o.step, o.final, o.score, o.points, o.depths, o.readouts) for s, o in found.items()})


@pytest.mark.parametrize("fields", [
    {}, {"optimizer": "sgd"}, {"dtype": "float64"}, {"clip": None}, {"clip": 0.05}, {"scheme": "hyper"}, {"scheme": "fixup"},
    {"scheme": "pro_res", "options": {"period": 5}}, {"scheme": "none", "options": {"normed": True}}], ids=str)
def test_a_seed_in_a_stack_trains_as_it_does_alone(fields: "dict[str, Any]") -> None:
    made = arm(**fields)
    found = _together.run(made, seeds(0, 1, 4), TASK)
    assert found is not None and list(found) == [0, 1, 4]
    for one in seeds(0, 1, 4):
        assert close(_trial.run(made, one, TASK), found[one.seed])
        assert found[one.seed].environment["stack"] == [0, 1, 4]


@pytest.mark.parametrize("fault", ["clip", "rows", "start", "optimizer", "counter"])
def test_a_step_that_differs_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes a stack right, taken away piece by piece: both this file and the check before a study must see it."""
    made = arm(scheme="pro_res", options={"period": 5}, clip=0.05)
    real = _trial.Run.batch
    if fault == "clip":
        monkeypatch.setattr(_together.Together, "_clip", lambda self: torch.ones(len(self.runs)))
    elif fault == "rows":
        monkeypatch.setattr(_together.Together, "train", with_rows_of_the_first(_together.Together.train, real))
    elif fault == "start":
        monkeypatch.setattr(_together, "_one", with_start_of_the_first(_together._one))
    elif fault == "optimizer":
        monkeypatch.setattr(Optimizer, "over", lambda self, tensors: replaced(self, tensors))
    else:
        monkeypatch.setattr(_together.Together, "train", without_counting(_together.Together.train))
    found = _together.run(made, seeds(0, 1), TASK)
    assert found is not None and not all(close(_trial.run(made, one, TASK), found[one.seed]) for one in seeds(0, 1))
    with pytest.raises(StudyError, match="engine together: variant pre_norm does not train as a stack of seeds"):
        _together.check(made, TASK, 1e-2)


def with_rows_of_the_first(train: Any, batch: Any) -> Any:
    def step(self: _together.Together) -> Any:
        for each in self.runs:
            each.batch = lambda at: batch(self.runs[0], at)         # type: ignore[method-assign,assignment,misc]
        return train(self)
    return step


def with_start_of_the_first(one: Any) -> Any:
    def made(rows: Any) -> Any:
        found = one(rows)
        for value in found.values():
            value.data.copy_(value.data[:1].expand_as(value).clone())
        return found
    return made


def replaced(own: Optimizer, tensors: Any) -> Optimizer:
    made = own.__class__.__new__(own.__class__)
    made.arm, made.peaks, made.all = own.arm, [[own.peaks[0][0]]], [torch.optim.AdamW(tensors.values(), lr=1e-3, betas=(0.5, 0.5))]
    return made


def without_counting(train: Any) -> Any:
    def step(self: _together.Together) -> Any:
        for each in self.runs:
            each.advance = lambda: None                             # type: ignore[method-assign]
        return train(self)
    return step


@pytest.mark.parametrize("name", schemes.names())
@pytest.mark.slow
def test_every_scheme_is_stacked_or_refused(name: str) -> None:
    """Those of today are all stacked; a new one may be refused, in one line."""
    made = arm(scheme=name, name=name)
    try:
        _together.check(made, TASK, 1e-3)
    except StudyError as error:
        assert "\n" not in str(error) and "take --engine local" in str(error)
        return
    found = _together.run(made, seeds(0, 1, name=name), TASK)
    assert found is not None and close(_trial.run(made, seeds(1, name=name)[0], TASK), found[1])


@pytest.fixture
def nets(tmp_path: pathlib.Path) -> str:
    (tmp_path / "nets.py").write_text(NETS)
    return str(tmp_path / "nets.py")


def net(nets: str, name: str) -> Arm:
    return arm(scheme=None, factory=f"{nets}:{name}", name=name, probes=())


@pytest.mark.parametrize(("name", "said"), [("Drops", "random"), ("Asks", "control flow"), ("Draws", "as it does alone"),
                                            ("Keeps", "as it does alone"), ("ByHand", "vmap"), ("Padded", "as it does alone")])
def test_what_cannot_be_stacked_is_refused(name: str, said: str, nets: str) -> None:
    """Padded: torch's vmap of an embedding with padding_idx gives the padding's gradient to all seeds but the first."""
    with pytest.raises(StudyError, match=rf"engine together: variant {name} does not train .*{said}.*; take --engine local"):
        _together.check(net(nets, name), TASK, 1e-2)


@pytest.mark.parametrize(("fields", "said"), [({"optimizer": "muon"}, "optimizer muon"), ({"dtype": "bfloat16"}, "dtype bfloat16")])
def test_fields_that_are_refused(fields: "dict[str, Any]", said: str) -> None:
    with pytest.raises(StudyError, match=f"variant pre_norm .*{said}"):
        _together.check(arm(**fields), TASK, 1e-3)


def test_running_means_are_each_seeds_own(nets: str) -> None:
    made = net(nets, "Normed")
    _together.check(made, TASK, 1e-2)
    found = _together.run(made, seeds(0, 1, name="Normed"), TASK)
    assert found is not None and all(close(_trial.run(made, one, TASK), found[one.seed]) for one in seeds(0, 1, name="Normed"))


def test_the_check_leaves_random_states(nets: str) -> None:
    before = torch.get_rng_state()
    _together.check(net(nets, "Net"), TASK, 1e-2)
    assert torch.equal(before, torch.get_rng_state())


def stopped(made: Arm, step: int, path: pathlib.Path, who: "list[Trial]") -> None:
    at = [0]
    assert _together.run(made, who, TASK, path, lambda done, losses: at.__setitem__(0, done), lambda: at[0] >= step) is None


@pytest.mark.parametrize("step", [1, 5, 11])
def test_a_stop_changes_no_bit(step: int, tmp_path: pathlib.Path) -> None:
    made, path = arm(scheme="pro_res", options={"period": 5}, probes=(0, 6, 12)), tmp_path / "c"
    stopped(made, step, path, seeds(0, 1, 2))
    assert _checkpoint.peek(path)["seeds"] == [0, 1, 2]
    again = _together.run(made, seeds(0, 2), TASK, path)            # the one that is not asked for is trained all the same
    whole = _together.run(made, seeds(0, 1, 2), TASK)
    assert whole is not None and again is not None and numbers(again) == numbers({s: whole[s] for s in (0, 2)})
    assert {o.resumed for o in again.values()} == {1}


def test_one_diverges_and_the_others_do_not(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    made, real, path = arm(probes=(0, 12)), _together.Together.train, tmp_path / "c"
    whole = _together.run(made, seeds(0, 1, 2), TASK)

    def breaks(self: _together.Together) -> Any:
        if self.step == 6:
            with torch.no_grad():
                next(iter(self.parameters.values()))[1] = float("nan")
        return real(self)
    monkeypatch.setattr(_together.Together, "train", breaks)
    found = _together.run(made, seeds(0, 1, 2), TASK)
    assert whole is not None and found is not None
    assert (found[1].state, found[1].step, found[1].reason) == ("diverged", 7, "the loss is not finite at step 7")
    assert numbers({s: found[s] for s in (0, 2)}) == numbers({s: whole[s] for s in (0, 2)})
    stopped(made, 9, path, seeds(0, 1, 2))                          # its row is kept over a stop
    again = _together.run(made, seeds(0, 1, 2), TASK, path)
    assert numbers(again) == numbers(found)


def jobs(tmp_path: pathlib.Path, arms: str, rates: "list[float]", numbers: "list[int]") -> "list[Job]":
    return [Job(arm(name=a), Trial(a, lr, s), str(tmp_path / f"{Trial(a, lr, s).id}.safetensors")) for s in numbers for a in arms for lr in rates]


def told(found: "list[list[Job]]") -> "list[Any]":
    return [(order[0].trial.arm, order[0].trial.lr, [j.trial.seed for j in order]) for order in found]


def test_the_stacks_of_a_study(tmp_path: pathlib.Path) -> None:
    assert told(stacks(jobs(tmp_path, "ba", [1.0, 2.0], [0, 1, 2]), 2)) == [
        ("b", 1.0, [0, 1, 2]), ("b", 2.0, [0, 1, 2]), ("a", 1.0, [0, 1, 2]), ("a", 2.0, [0, 1, 2])]
    assert told(stacks(jobs(tmp_path, "a", [1.0], [0, 1, 2, 3, 4]), 2)) == [("a", 1.0, [0, 1]), ("a", 1.0, [2, 3, 4])]
    assert told(stacks(jobs(tmp_path, "a", [1.0], [3]), 8)) == [("a", 1.0, [3])]


def test_a_stack_that_began_stays_as_it_is(tmp_path: pathlib.Path) -> None:
    """Whatever the number of workers: its checkpoint names its seeds."""
    made = replace(arm(), name="a")
    for part in ([0, 1], [3, 4]):
        who = [Trial("a", 1e-3, s) for s in part]
        stopped(made, 6, tmp_path / f"{who[0].id}.safetensors", who)
    assert told(stacks(jobs(tmp_path, "a", [1e-3], [0, 1, 2, 3, 4]), 1)) == [("a", 1e-3, [0, 1]), ("a", 1e-3, [3, 4]), ("a", 1e-3, [2])]
    assert told(stacks(jobs(tmp_path, "a", [1e-3], [0, 3, 4]), 4)) == [("a", 1e-3, [0]), ("a", 1e-3, [3, 4])]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> "tuple[pathlib.Path, dict[str, Any]]":
    folder = tmp_path_factory.mktemp("whole")
    return folder, lab.run(lab.Study(**SMALL), folder, engine="together", workers=1)


@pytest.mark.slow
def test_a_study_of_stacks_is_that_of_the_local_engine(whole: "tuple[pathlib.Path, dict[str, Any]]", tmp_path: pathlib.Path) -> None:
    folder, record = whole
    lab.run(lab.Study(**SMALL), tmp_path / "local", workers=1)
    store, other = Store(folder), Store(tmp_path / "local")
    mine, theirs = store.outcomes(), other.outcomes()
    assert mine.keys() == theirs.keys() and len(mine) == 12 and all(close(theirs[t], mine[t]) for t in mine)
    assert {(o.environment["engine"], tuple(o.environment["stack"])) for o in mine.values()} == {("together", (0, 1, 2))}
    assert {o.environment["engine"] for o in theirs.values()} == {"local"} and record["environment"]["engine"] == "together"
    assert not list((folder / "checkpoints").iterdir())
    store.close()
    other.close()


@pytest.mark.slow
def test_a_study_goes_on_with_its_own_engine(whole: "tuple[pathlib.Path, dict[str, Any]]", tmp_path: pathlib.Path) -> None:
    seen: list[str] = []
    with pytest.raises(Stopped):
        lab.run(lab.Study(**SMALL), tmp_path, engine="together", workers=1, tell=lambda e: seen.append(e.kind), stop=lambda: seen.count("ended") >= 3)
    with pytest.raises(StudyError, match="its trials run on engine together, whose numbers differ in the last digits from those of local; leave"):
        lab.resume(tmp_path, engine="local", workers=1)
    assert lab.resume(tmp_path, workers=2)["complete"] and facts(tmp_path) == facts(whole[0])


def test_a_local_study_does_not_go_on_in_stacks(tmp_path: pathlib.Path) -> None:
    with pytest.raises(Stopped):
        lab.run(lab.Study(**SMALL), tmp_path, workers=1, stop=lambda: True)
    with pytest.raises(StudyError, match="its trials run on engine local, whose numbers differ in the last digits from those of together"):
        lab.resume(tmp_path, engine="together")
    assert engines.arithmetic("ray") == engines.arithmetic("local") if "ray" in engines.names() else True


KILLED = "import sys, json\nfrom skipway import lab\nlab.run(lab.Study(**json.loads(sys.argv[2])), sys.argv[1], engine='together', workers=1)\n"
AGAIN = "import sys\nfrom skipway import lab\nlab.resume(sys.argv[1], workers=1)\n"


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 2])
def test_a_kill_between_the_rows_of_a_stack(rows: int, whole: "tuple[pathlib.Path, dict[str, Any]]", tmp_path: pathlib.Path) -> None:
    """The main process dies when `rows` of a stack's three are stored: the others go on from its checkpoint, which lies there till the last."""
    folder = tmp_path / "s"
    code = KILLED.replace("lab.run(", "import os\nfrom skipway.lab._store import Store\nreal, done = Store.ended, []\n"
                          "def ended(self, *a):\n    real(self, *a)\n    done.append(1)\n"
                          f"    os.kill(os.getpid(), 9) if len(done) == {rows} else None\nStore.ended = ended\nlab.run(", 1)
    died = subprocess.run([sys.executable, "-c", code, str(folder), json.dumps(SMALL)], capture_output=True)
    assert died.returncode == -signal.SIGKILL
    store = Store(folder)
    assert len(store.trials("finished")) == rows and len(store.trials("waiting", "running")) == 12 - rows
    store.close()
    assert len(list((folder / "checkpoints").glob("*.safetensors"))) >= 1
    subprocess.run([sys.executable, "-c", AGAIN, str(folder)], check=True, capture_output=True)
    assert facts(folder) == facts(whole[0])


@pytest.mark.slow
def test_a_killed_stack_goes_on_from_its_checkpoint(whole: "tuple[pathlib.Path, dict[str, Any]]", tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "s"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder), json.dumps(SMALL)], stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while time.monotonic() < end and not list((folder / "checkpoints").glob("*.safetensors")) and process.poll() is None:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    subprocess.run([sys.executable, "-c", AGAIN, str(folder)], check=True, capture_output=True)
    assert facts(folder) == facts(whole[0])


@pytest.mark.slow
def test_a_stack_that_raises_is_rows_with_the_reason(nets: str, tmp_path: pathlib.Path) -> None:
    fields = {**SMALL, "variants": [f"{nets}:Net", f"{nets}:Dies"], "lr": 1e-2, "probes": 0, "seeds": 2}
    record = lab.run(lab.Study(**fields), tmp_path / "s", engine="together", workers=1)
    rows = {(t["arm"].rpartition(":")[2], t["seed"]): (t["state"], t["reason"]) for t in record["trials"]}
    assert rows == {("Net", 0): ("finished", ""), ("Net", 1): ("finished", "")} | {
        ("Dies", s): ("failed", "RuntimeError: broken at last") for s in (0, 1)}


def test_a_study_that_cannot_be_stacked_makes_no_folder(nets: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(StudyError, match=r"variant .*:Drops does not train as a stack of seeds"):
        lab.run(lab.Study(**{**SMALL, "variants": [f"{nets}:Net", f"{nets}:Drops"]}), tmp_path / "s", engine="together")
    assert not (tmp_path / "s").exists()


def test_the_plan_says_which_engine_and_which_would_be_faster() -> None:
    from skipway.cli._compare_plan import text
    made = lab.plan(lab.Study(**{**SMALL, "seeds": 5}))
    assert "--engine together trains the 5 seeds of each variant and rate as one stack" in text(made)
    assert "engine together: the seeds of each variant and rate train as one stack" in text(made, "together")
    for engine, seeds, optimizer in (("local", 5, "adamw"), (None, 4, "adamw"), (None, 5, "muon")):
        assert "together" not in text(lab.plan(lab.Study(**{**SMALL, "seeds": seeds, "optimizer": optimizer})), engine)
    assert not tasks.load("digits").together and tasks.load("mlp_depth").together
