"""The store: rows come back as they went in, one writer, and nothing that is damaged is ever written over."""

import json
import os
import pathlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator

import pytest
from small import arm, outcome, trial

from skipway._errors import StoreError
from skipway.lab._lock import Lock
from skipway.lab._store import FILE, Store
from skipway.lab.records import Depth, Trial

TRIALS = [Trial("pre_norm", lr, seed) for seed in (0, 1) for lr in (1e-3, 3e-3)]


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Iterator[Store]:
    made = Store.create(tmp_path, {"study": {"task": "copy"}}, [arm()], TRIALS)
    yield made
    made.close()


def test_rows_come_back(store: Store) -> None:
    assert store.meta("study") == {"task": "copy"} and store.meta("nothing") is None
    assert store.arms() == [arm()] and store.trials() == TRIALS == store.trials("waiting")
    kept = outcome(1 / 3, depths=(Depth(0, 0, 0, "ffn", 1.5, 0.1, None, 1e-300),), environment={"torch": "2"})
    store.began(TRIALS[0])
    store.ended(TRIALS[0], kept)
    store.ended(TRIALS[1], outcome(None, "diverged", reason="at step 3"))
    store.began(TRIALS[2])
    assert store.outcomes() == {TRIALS[0]: kept, TRIALS[1]: outcome(None, "diverged", reason="at step 3")}
    assert [store.states()[t][0] for t in TRIALS] == ["finished", "diverged", "running", "waiting"]
    store.waits(TRIALS[2])
    assert store.trials("waiting") == TRIALS[2:]


def test_a_trial_is_never_doubled(store: Store) -> None:
    store.ended(TRIALS[0], outcome(0.5))
    store.add([*TRIALS, trial(seed=7)])
    assert len(store.trials()) == 5 and store.states()[TRIALS[0]][0] == "finished"
    store.ended(TRIALS[0], outcome(0.25))
    assert len(store.outcomes()[TRIALS[0]].points) == 2 and store.outcomes()[TRIALS[0]].final == 0.25


def test_seeds_come_first(store: Store) -> None:
    assert [t.seed for t in store.trials()] == [0, 0, 1, 1]


def test_a_reader_needs_no_writer_to_end(store: Store, tmp_path: pathlib.Path) -> None:
    store.ended(TRIALS[0], outcome(0.5))
    reader = Store(tmp_path)
    assert list(reader.outcomes()) == [TRIALS[0]]
    with pytest.raises(StoreError, match="cannot be written"):
        reader.began(TRIALS[1])
    reader.close()


def test_a_folder_that_holds_a_study_takes_no_second(store: Store, tmp_path: pathlib.Path) -> None:
    with pytest.raises(StoreError, match=f"already holds a study; go on with --resume {tmp_path}"):
        Store.create(tmp_path, {}, [], [])


def test_no_study(tmp_path: pathlib.Path) -> None:
    with pytest.raises(StoreError, match="no study there"):
        Store(tmp_path)


def filled(folder: pathlib.Path) -> bytes:
    made = Store.create(folder, {"study": {}}, [arm()], [Trial("pre_norm", 1e-3, s) for s in range(200)])
    for s in range(40):
        made.ended(Trial("pre_norm", 1e-3, s), outcome(0.5))
    made.close()
    return (folder / FILE).read_bytes()


@pytest.mark.parametrize("damage", ["text", "empty", "cut", "page", "header"])
def test_a_damaged_file_is_told_and_left(tmp_path: pathlib.Path, damage: str) -> None:
    good = filled(tmp_path)
    bad = {"text": b"not a database\n" * 100, "empty": b"", "cut": good[:len(good) // 2], "page": good[:8192] + os.urandom(8192) + good[16384:],
           "header": b"\0" * 100 + good[100:]}[damage]
    path = tmp_path / FILE
    path.write_bytes(bad)
    for write in (False, True):
        with pytest.raises(StoreError) as error:
            Store(tmp_path, write=write)
        assert "damaged" in str(error.value) or "no store of skipway compare" in str(error.value)
        assert "\n" not in str(error.value) and path.read_bytes() == bad


def test_another_version_and_another_file(tmp_path: pathlib.Path) -> None:
    filled(tmp_path)
    with sqlite3.connect(tmp_path / FILE) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="it has version 99, and this skipway reads 1"):
        Store(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    with sqlite3.connect(other / FILE) as db:
        db.execute("CREATE TABLE t (a)")
    with pytest.raises(StoreError, match="this is no store of skipway compare"):
        Store(other)


def test_a_full_disk_keeps_what_was_there(store: Store, tmp_path: pathlib.Path) -> None:
    store.ended(TRIALS[0], outcome(0.5))
    pages = store.db.execute("PRAGMA page_count").fetchone()[0]
    store.db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match=f"the disk is full; what was finished is kept.*--resume {tmp_path}"):
        for seed in range(100, 400):
            store.add([trial(seed=seed)])
    with pytest.raises(StoreError, match="the disk is full"):
        store.ended(TRIALS[1], outcome(0.5, depths=tuple(Depth(0, k, 0, "ffn", 1.0, 1.0, 1.0, 1.0) for k in range(5000))))
    assert store.states()[TRIALS[1]][0] == "waiting" and store.outcomes()[TRIALS[0]].final == 0.5


HOLD = """
import sys, pathlib, time
from skipway.lab._lock import Lock
with Lock(pathlib.Path(sys.argv[1])):
    print('held', flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_refused_with_the_first_ones_id(tmp_path: pathlib.Path) -> None:
    first = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout is not None and first.stdout.readline() == "held\n"
        with pytest.raises(StoreError, match=f"process {first.pid} on .* is working on this study"), Lock(tmp_path):
            pass
    finally:
        first.kill()
        first.wait()
    with Lock(tmp_path):                                    # a killed holder holds nothing
        assert json.loads((tmp_path / "study.lock").read_text())["process"] == os.getpid()
    assert (tmp_path / "study.lock").read_text() == ""


def test_a_folder_that_may_not_be_written(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StoreError, match="Not a directory; choose a folder"), Lock(file):
        pass


def test_the_store_needs_no_torch(tmp_path: pathlib.Path) -> None:
    filled(tmp_path)
    code = ("import sys, pathlib; from skipway.lab._store import Store; "
            f"Store(pathlib.Path({str(tmp_path)!r})).outcomes(); print('torch' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
