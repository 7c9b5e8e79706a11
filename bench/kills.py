"""Kills of small studies: SIGKILL at random moments, resumed each time, until nothing is left; then compared with studies that nobody killed.

    python bench/kills.py [--count 100] [--seed 0] [--workers 1] [--quick] [--json FILE]

Two kinds of study take turns, one of a fixed number of seeds and one that adds seeds until all is decided. A kill falls between the moment at
which the folder is opened and the end: on the lock, on the store's making, on the start of the workers, on steps and checkpoints, on the rows of
trials that end, on the report. Status 1 where a study does not resume, a trial is lost, doubled, or differs in one bit of its curves, or a
checkpoint is left over.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import signal
import sqlite3
import sys
import tempfile
import time
import traceback

import torch

from skipway import lab
from skipway.lab._store import FILE, Store

FIXED = {"task": "copy:symbols=4,length=3", "variants": ["none:normed=true", "pre_norm", "hyper:lanes=2"], "depth": 1, "width": 16,
         "heads": 2, "batch": 8, "steps": 100, "lr": 1e-2, "seeds": 2, "checkpoint": 5, "held_out": 1, "probes": [0, 100]}
ADDED = {**FIXED, "variants": ["pre_norm", {"name": "twin", "variant": "pre_norm"}], "until_decided": True, "max_seeds": 4}
STUDIES = {"fixed": FIXED, "until decided": ADDED}
LONG = 3600.0
EARLY, LATE = 0.3, 0.7      # of a life: until then half of all kills fall, and the other half; each goes on from where the last one fell


def begun(folder: pathlib.Path, study: dict, workers: int) -> int:
    """A process of its own that runs or resumes the study of the folder; gives its id.

    It is forked off this one, which has imported all: while Python imports, nothing of a study is there to be killed. Workers start as always.
    """
    process = os.fork()
    if process:
        return process
    try:
        if (folder / FILE).exists():
            lab.resume(folder, workers=workers)
        else:
            lab.run(lab.Study(**study), folder, workers=workers)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def ended(process: int, seconds: float) -> int | None:
    """Its status, or None where it is not at its end after so many seconds."""
    until = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            return None
        time.sleep(0.002)


def facts(folder: pathlib.Path) -> dict[str, str]:
    """Of every trial, all that a kill must not change; every number with all its digits."""
    store = Store(folder)
    found = {t.id: repr((o.state, o.step, o.final, o.points, o.depths, o.readouts)) for t, o in store.outcomes().items()}
    store.close()
    return found


def rows(folder: pathlib.Path) -> int:
    with sqlite3.connect(folder / FILE) as db:
        return int(db.execute("SELECT count(*) FROM trials").fetchone()[0])


def state(folder: pathlib.Path) -> str:
    """Where in its life a killed study was."""
    if not (folder / FILE).exists():
        return "before the store"
    store = Store(folder)
    waiting, running, all_ = len(store.trials("waiting")), len(store.trials("running")), len(store.trials())
    store.close()
    if running:
        return "trials running"
    return "before the first trial" if waiting == all_ else "between trials" if waiting else "all trials done"


def moment(rng: random.Random, life: float) -> float:
    """Seconds until a kill."""
    return life * rng.uniform(0, EARLY if rng.random() < 0.5 else LATE)


def killed(folder: pathlib.Path, study: dict, workers: int, rng: random.Random, life: float, left: int) -> tuple[int, "collections.Counter[str]"]:
    """Runs one study to its end through up to `left` kills; gives their number and where they fell. Raises RuntimeError where it does not go on."""
    done, places = 0, collections.Counter[str]()
    while True:
        process = begun(folder, study, workers)
        status = ended(process, moment(rng, life) if done < left else LONG)
        if status is None:
            os.kill(process, signal.SIGKILL)
            status = ended(process, LONG)
        if status == 0:
            return done, places
        if status != -signal.SIGKILL:
            raise RuntimeError(f"it ended with status {status}, as said above")
        done += 1
        places[state(folder)] += 1


def faults(folder: pathlib.Path, want: dict[str, str]) -> list[str]:
    """What is wrong with a study that has come to its end."""
    got = facts(folder)
    found = [f"trial {k} is lost" for k in want if k not in got] + [f"trial {k} is one too many" for k in got if k not in want]
    found += [f"trial {k} differs" for k in want if k in got and got[k] != want[k]]
    if rows(folder) != len(want):
        found.append(f"{rows(folder)} rows for {len(want)} trials")
    found += [f"{p.name} is left over" for p in (folder / "checkpoints").iterdir()]
    record = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return found + ([] if record["complete"] and len(record["trials"]) == len(want) else ["the report is not complete"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="6 kills")
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.set_num_threads(1)            # a process with threads is not to be forked
    count, rng, start = 6 if options.quick else options.count, random.Random(options.seed), time.monotonic()
    kills, studies, bad, places = 0, 0, 0, collections.Counter[str]()
    with tempfile.TemporaryDirectory() as root:
        whole, life = {}, {}
        for kind, study in STUDIES.items():
            folder, at = pathlib.Path(root) / f"whole {kind}", time.monotonic()
            if ended(begun(folder, study, options.workers), LONG) != 0:
                raise SystemExit("the study that nobody kills does not come to its end")
            whole[kind], life[kind] = facts(folder), time.monotonic() - at
        while kills < count:
            kind = list(STUDIES)[studies % len(STUDIES)]
            studies += 1
            folder, most = pathlib.Path(root) / f"killed {studies}", count - kills
            try:
                done, fell = killed(folder, STUDIES[kind], options.workers, rng, life[kind], most)
                wrong = faults(folder, whole[kind])
            except (RuntimeError, OSError) as error:
                print(f"study {studies} ({kind}): {error}")
                return 1
            kills, places, bad = kills + done, places + fell, bad + bool(wrong)
            said = "; ".join(wrong[:3]) or "all equal bit for bit"
            print(f"study {studies:>2} ({kind}): {done:>2} kills, {len(whole[kind])} trials, {said}", flush=True)
    print(f"{kills} kills in {studies} studies ({', '.join(f'{n} {place}' for place, n in places.most_common())}): {bad} studies with a fault")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"kills": kills, "studies": studies, "faulty": bad, "places": places,
                                                          "seconds": time.monotonic() - start}, indent=1))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
