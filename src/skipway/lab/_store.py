"""The store of a study: one SQLite file in its folder, written by one process. Needs no torch.

    meta        key, value              study, plan facts and environment, as JSON
    arms        place, name, record     `records.Arm`
    trials      id, arm, lr, seed, state, reason, record      `records.Outcome` without its curves
    points      trial, split, step, ...         curves; NULL: not finite
    depths      trial, step, place, ...         measurements by depth

Write-ahead log, so that a reader never waits; a trial's end is one transaction. The user_version is the schema's; a file of another is refused.
"""

import contextlib
import errno
import json
import pathlib
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields, replace
from typing import Any

from skipway._errors import StoreError
from skipway.lab.records import Arm, Depth, Outcome, Point, Trial, record

FILE = "study.sqlite"
APPLICATION = 0x736B7761            # "skwa"
VERSION = 1
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
POINT, DEPTH = (tuple(f.name for f in fields(kind)) for kind in (Point, Depth))
SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE arms (place INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, record TEXT NOT NULL);
CREATE TABLE trials (id TEXT PRIMARY KEY, arm TEXT NOT NULL REFERENCES arms(name), lr REAL NOT NULL, seed INTEGER NOT NULL, state TEXT NOT NULL,
                     reason TEXT NOT NULL DEFAULT '', record TEXT, UNIQUE (arm, lr, seed));
CREATE TABLE points (trial TEXT NOT NULL REFERENCES trials(id), {', '.join(POINT)}, PRIMARY KEY (trial, split, step)) WITHOUT ROWID;
CREATE TABLE depths (trial TEXT NOT NULL REFERENCES trials(id), {', '.join(DEPTH)}, PRIMARY KEY (trial, step, "index")) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
""".replace(" index,", ' "index",')


class Store:
    """Open for reading, or for writing by the process that holds the folder's lock."""

    def __init__(self, folder: pathlib.Path, *, write: bool = False) -> None:
        """Opens the store of a folder. Raises StoreError where there is none, it is damaged, or of another version; nothing is written then."""
        self.path = folder / FILE
        _sound(self.path)
        self.db = _connect(self.path, write)

    @classmethod
    def create(cls, folder: pathlib.Path, meta: dict[str, Any], arms: Iterable[Arm], trials: Iterable[Trial]) -> "Store":
        """A new store. Raises StoreError where the folder holds one already or cannot be written."""
        path = folder / FILE
        if path.exists():
            raise StoreError(f"{folder}: it already holds a study; go on with --resume {folder}, or choose another folder with --out")
        beside = folder / f"{FILE}.new"
        try:
            beside.unlink(missing_ok=True)
            with contextlib.closing(sqlite3.connect(beside)) as db, _full(folder):
                db.executescript(SCHEMA)
                db.executemany("INSERT INTO meta VALUES (?, ?)", [(k, json.dumps(v)) for k, v in meta.items()])
                db.executemany("INSERT INTO arms VALUES (?, ?, ?)", [(i, a.name, json.dumps(asdict(a))) for i, a in enumerate(arms)])
                db.executemany("INSERT INTO trials (id, arm, lr, seed, state) VALUES (?, ?, ?, ?, 'waiting')", [_row(t) for t in trials])
                db.commit()
            beside.replace(path)            # a kill before this line leaves no half study
        except OSError as error:
            raise StoreError(f"{folder}: {error.strerror}; choose a folder that may be written to") from error
        return cls(folder, write=True)

    def close(self) -> None:
        self.db.close()

    def meta(self, key: str) -> Any:
        """One of the facts of the study."""
        row = self.db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else json.loads(row[0])

    def remember(self, key: str, value: Any) -> None:
        """Keeps a fact."""
        with self._write() as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))

    def arms(self) -> list[Arm]:
        return [record(Arm, json.loads(r[0])) for r in self.db.execute("SELECT record FROM arms ORDER BY place")]

    def trials(self, *states: str) -> list[Trial]:
        """Trials in the order in which they are run, of these states or of all: seeds first, so that an early end has whole pairs."""
        rows = self.db.execute("SELECT t.arm, t.lr, t.seed, t.state FROM trials t JOIN arms a ON a.name = t.arm ORDER BY t.seed, a.place, t.lr")
        return [Trial(arm, lr, seed) for arm, lr, seed, state in rows if not states or state in states]

    def states(self) -> dict[Trial, tuple[str, str]]:
        """State and reason of every trial."""
        return {Trial(a, lr, s): (state, why) for a, lr, s, state, why in self.db.execute("SELECT arm, lr, seed, state, reason FROM trials")}

    def outcomes(self) -> dict[Trial, Outcome]:
        """What came of every trial that has ended, with its curves."""
        found = {}
        for id_, arm, lr, seed, state, reason, said in self.db.execute("SELECT id, arm, lr, seed, state, reason, record FROM trials").fetchall():
            if state in ("finished", "diverged", "failed"):
                data = {**json.loads(said or "{}"), "state": state, "reason": reason}
                points = [dict(zip(POINT, r, strict=True)) for r in self._of("points", POINT, id_, "step, split DESC")]
                depths = [dict(zip(DEPTH, r, strict=True)) for r in self._of("depths", DEPTH, id_, 'step, "index"')]
                found[Trial(arm, lr, seed)] = Outcome.from_dict({"step": 0, **data, "points": points, "depths": depths})
        return found

    def _of(self, table: str, columns: tuple[str, ...], trial: str, order: str) -> list[tuple[Any, ...]]:
        named = ", ".join(f'"{c}"' for c in columns)
        return self.db.execute(f"SELECT {named} FROM {table} WHERE trial = ? ORDER BY {order}", (trial,)).fetchall()

    def add(self, trials: Iterable[Trial]) -> None:
        """More trials, waiting; those that are there stay as they are."""
        with self._write() as db:
            db.executemany("INSERT OR IGNORE INTO trials (id, arm, lr, seed, state) VALUES (?, ?, ?, ?, 'waiting')", [_row(t) for t in trials])

    def began(self, trial: Trial) -> None:
        self._state(trial, "running")

    def waits(self, *trials: Trial) -> None:
        """Puts trials back to be run."""
        for trial in trials:
            self._state(trial, "waiting")

    def _state(self, trial: Trial, state: str) -> None:
        with self._write() as db:
            db.execute("UPDATE trials SET state = ?, reason = '' WHERE id = ?", (state, trial.id))

    def ended(self, trial: Trial, outcome: Outcome) -> None:
        """A trial's row and curves, in one transaction."""
        said = json.dumps(asdict(replace(outcome, points=(), depths=())))
        marks = {kind: ", ".join("?" * (len(kind) + 1)) for kind in (POINT, DEPTH)}
        with self._write() as db:
            for table in ("points", "depths"):
                db.execute(f"DELETE FROM {table} WHERE trial = ?", (trial.id,))
            db.executemany(f"INSERT INTO points VALUES ({marks[POINT]})", [(trial.id, *(getattr(p, c) for c in POINT)) for p in outcome.points])
            db.executemany(f"INSERT INTO depths VALUES ({marks[DEPTH]})", [(trial.id, *(getattr(d, c) for c in DEPTH)) for d in outcome.depths])
            db.execute("UPDATE trials SET state = ?, reason = ?, record = ? WHERE id = ?", (outcome.state, outcome.reason, said, trial.id))

    @contextlib.contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with _full(self.path.parent), self.db:
            yield self.db


def _row(trial: Trial) -> tuple[str, str, float, int]:
    return trial.id, trial.arm, trial.lr, trial.seed


def _connect(path: pathlib.Path, write: bool) -> sqlite3.Connection:
    try:
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode={'rw' if write else 'ro'}", uri=True, timeout=30)
        if write:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error as error:
        raise StoreError(f"{path}: it cannot be opened ({error}); see whether the folder may be written to") from error
    return db


def _sound(path: pathlib.Path) -> None:
    """Raises StoreError where the file is no store that can be trusted. Reads only: what is damaged stays as it is."""
    if not path.is_file():
        raise StoreError(f"{path.parent}: no study there (it has no {FILE}); give the folder that --out named")
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=30)) as db:
            application, version = (db.execute(f"PRAGMA {key}").fetchone()[0] for key in ("application_id", "user_version"))
            if application != APPLICATION:
                raise StoreError(f"{path}: this is no store of skipway compare; give the folder that --out named")
            if version != VERSION:
                raise StoreError(f"{path}: it has version {version}, and this skipway reads {VERSION}; use the skipway that wrote it")
            found = [row[0] for row in db.execute("PRAGMA integrity_check(3)")]
    except sqlite3.Error as error:
        found = [str(error)]
    if found != ["ok"]:
        raise StoreError(f"{path}: the file is damaged ({'; '.join(' '.join(f.split()) for f in found)}); it was left as it is. "
                         "Put a copy of it back, or start the study anew in another folder")


@contextlib.contextmanager
def _full(folder: pathlib.Path) -> Iterator[None]:
    """Names a full disk."""
    try:
        yield
    except sqlite3.Error as error:
        if "full" in str(error) or "disk I/O" in str(error):
            raise full(folder) from error
        raise StoreError(f"{folder / FILE}: it cannot be written ({error})") from error


def full(folder: pathlib.Path) -> StoreError:
    """The error for a disk that takes no more."""
    return StoreError(f"{folder}: the disk is full; what was finished is kept. Make room, then run: skipway compare --resume {folder}")
