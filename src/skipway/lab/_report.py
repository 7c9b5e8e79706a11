"""Writes `report.json` and `curves.csv` of a study's folder. Needs no torch."""

import csv
import io
import json
import os
import pathlib
from collections.abc import Iterable
from typing import Any

from skipway._errors import StoreError
from skipway.lab import _analysis
from skipway.lab._store import FULL, Store, full
from skipway.lab.records import Record

FILES = ("report.json", "curves.csv")
COLUMNS = ("arm", "lr", "seed", "split", "step", "loss", "score", "rate", "gradient")


def made(store: Store) -> Record:
    """The report's record, of what the store holds now."""
    meta = {k: store.meta(k) for k in ("study", "task", "threshold", "design", "fixed_rates", "environment")}
    made = json.dumps(_analysis.report(meta, store.arms(), store.states(), store.outcomes()), allow_nan=False)
    return Record(json.loads(made))         # as it is read back from the file: lists, and keys that are texts


def write(folder: pathlib.Path, record: dict[str, Any], more: Iterable[tuple[str, bytes]] = ()) -> None:
    """Both files, and more by name. Raises StoreError where the folder cannot be written."""
    for name, text in zip(FILES, (json.dumps(record, indent=1, allow_nan=False) + "\n", curves(record)), strict=True):
        put(folder, name, text.encode())
    for name, data in more:
        put(folder, name, data)


def put(folder: pathlib.Path, name: str, data: bytes) -> None:
    """One file of the study's folder, moved into place whole. Raises StoreError where it cannot be written."""
    beside = folder / f"{name}.{os.getpid()}"
    try:
        beside.parent.mkdir(exist_ok=True)
        beside.write_bytes(data)
        beside.replace(folder / name)
    except OSError as error:
        beside.unlink(missing_ok=True)
        if error.errno in FULL:
            raise full(folder) from error
        raise StoreError(f"{folder / name}: {error.strerror}; see whether the folder may be written to") from error


def curves(record: dict[str, Any]) -> str:
    """Every point of every trial as CSV; an empty loss is one that was not finite."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(COLUMNS)
    for trial in record["trials"]:
        for p in trial.get("points", ()):
            rows.writerow([trial["arm"], trial["lr"], trial["seed"], p["split"], p["step"], p["loss"], p["score"], p["lr"], p["gradient"]])
    return out.getvalue()
