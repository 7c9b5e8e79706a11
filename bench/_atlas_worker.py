"""Checks one target after another for bench/atlas.py: reads names from stdin, writes one line of JSON a target to the given descriptor.

    python bench/_atlas_worker.py DESCRIPTOR MEMORY_GIB
"""

import json
import os
import resource
import sys
import time
import traceback
import warnings
from typing import Any

os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"     # before anything imports huggingface_hub

GIB = 2 ** 30


def one(name: str) -> dict[str, Any]:
    """The report on one target, or what kept it from being checked."""
    from skipway._errors import SkipwayError
    from skipway.checks.config import Config
    from skipway.cli._run import checked
    from skipway.targets import resolve

    began = time.perf_counter()
    row: dict[str, Any] = {"target": name}
    options = {"stage": "graph", "expect": None, "select": (), "ignore": (), "hooks": (), "dtype": None, "entry_points": {}}
    try:
        row["report"] = checked(resolve(name), "eval", options, Config()).to_dict()
    except SkipwayError as error:
        row["reason"] = str(error)
    except MemoryError as error:
        row["reason"] = f"out of memory: {error}"
    except Exception as error:                  # what is not one of our errors is a crash, and listed as one
        row["crash"] = f"{type(error).__name__}: {error}"
        row["traceback"] = traceback.format_exc()
    row["seconds"] = round(time.perf_counter() - began, 3)
    return row


def main(descriptor: int, memory: float) -> None:
    """Serves targets until stdin ends."""
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory * GIB), int(memory * GIB)))
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(json.dumps({"ready": True}) + "\n")
        out.flush()
        for line in sys.stdin:
            out.write(json.dumps(one(line.strip())) + "\n")
            out.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
