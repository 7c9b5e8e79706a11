"""Kills of a small study: SIGKILL at random moments, resumed each time, until nothing is left; then compared with a study that nobody killed.

    python bench/kills.py [--count 100] [--seed 0] [--quick]

Status 1 where a trial is lost, doubled, or differs in one bit of its curves.
"""

import argparse
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

from skipway.lab._store import FILE, Store

STUDY = {"task": "copy:symbols=4,length=3", "variants": ["none:normed=true", "pre_norm", "hyper:lanes=2"], "depth": 2, "width": 16,
         "heads": 2, "batch": 8, "steps": 400, "lr": [1e-3, 1e-2], "seeds": 3, "checkpoint": 20, "held_out": 1, "probes": 3}
NEW = "import sys, json\nfrom skipway import lab\nlab.run(lab.Study(**json.loads(sys.argv[2])), sys.argv[1], workers=int(sys.argv[3]))\n"
AGAIN = "import sys\nfrom skipway import lab\nlab.resume(sys.argv[1], workers=int(sys.argv[3]))\n"


def start(folder: pathlib.Path, study: dict, workers: int) -> "subprocess.Popen[bytes]":
    code = AGAIN if (folder / FILE).exists() else NEW
    return subprocess.Popen([sys.executable, "-c", code, str(folder), json.dumps(study), str(workers)], stderr=subprocess.PIPE)


def facts(folder: pathlib.Path) -> dict[str, str]:
    store = Store(folder)
    found = {t.id: repr((o.state, o.step, o.final, o.points, o.depths, o.readouts)) for t, o in store.outcomes().items()}
    store.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="8 kills")
    options = parser.parse_args()
    left, rng = 8 if options.quick else options.count, random.Random(options.seed)
    with tempfile.TemporaryDirectory() as root:
        whole, rounds, kills, bad = pathlib.Path(root) / "whole", 0, 0, 0
        assert start(whole, STUDY, options.workers).wait() == 0
        want = facts(whole)
        while left:
            folder = pathlib.Path(root) / f"killed-{rounds}"
            rounds += 1
            done = killed = 0
            while not done:
                process = start(folder, STUDY, options.workers)
                # starting takes seconds; the longer moments reach the training, the shorter ones the start, the store and the lock
                time.sleep(rng.uniform(1, 14) if left else 0)
                if left and process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                    left, killed, kills = left - 1, killed + 1, kills + 1
                if process.wait() not in (0, -signal.SIGKILL):
                    print(f"resume failed: {process.stderr.read().decode() if process.stderr else ''}")
                    return 1
                done = process.returncode == 0
            got = facts(folder)
            same = sum(got.get(k) == v for k, v in want.items())
            bad += got != want
            print(f"study {rounds}: {killed} kills; {len(got)} of {len(want)} trials, {same} equal bit for bit", flush=True)
        print(f"{kills} kills, {rounds} studies, {bad} of them differ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
