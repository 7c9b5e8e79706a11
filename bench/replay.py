"""The proof on hand-read models: every stream replayed, in float32 and bfloat16, evaluation and training.

    python bench/replay.py [WIRINGS.json] [ID ...]

The file lists models and their inputs as beside this checkout in shared/truth/ (the default). Prints a line a model that is not rebuilt to the last
bit, then for each kind of run the sites, the worst distance in ulp, and how many streams without a norm on them are the sum of their writes.
"""

import importlib.util
import json
import pathlib
import sys
import warnings
from collections import Counter
from typing import Any

DEFAULT = pathlib.Path(__file__).resolve().parents[2] / "shared" / "truth" / "wirings.json"
RUNS = (("float32", False), ("float32", True), ("bfloat16", False), ("bfloat16", True))


def builder(folder: pathlib.Path) -> Any:
    """The function `build(entry)` that lies beside the list."""
    spec = importlib.util.spec_from_file_location("build", folder / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.build


def replayed(build: Any, entry: dict[str, Any], dtype: str, training: bool) -> dict[str, Any]:
    """Sites, worst ulp, additive streams, and what is wrong, of one model in one kind of run."""
    import torch

    import skipway
    model, inputs = build(entry)
    kind = getattr(torch, dtype)
    model = model.train(training).to(kind)
    inputs = {k: v.to(kind) if v.is_floating_point() else v for k, v in inputs.items()}
    wiring = skipway.trace(model, **inputs)
    proof = wiring.replay(model, **inputs)
    wrong = [f"site {s.index} of {s.stream} in {s.module}: {s.ulp} ulp over {s.operations} operations" for s in proof.sites if not s.ok]
    additive = 0
    for stream in wiring.decompose(model, **inputs).streams:
        for k, state in enumerate(stream.states[1:]):
            again = stream.write(k, stream.states[k], stream.branches[k])
            if not torch.equal(again.nan_to_num(), state.nan_to_num()):
                wrong.append(f"write {k} of {stream.name} does not give the state")
        identity = stream.identity()
        if identity is not None:
            additive += 1
            if not identity[0] <= identity[1]:
                wrong.append(f"{stream.name} is {identity[0]:.2f} ulp from the sum of its writes, rounding explains {identity[1]:.2f}")
    return {"sites": len(proof.sites), "worst": proof.worst, "additive": additive, "wrong": wrong}


def main(arguments: list[str]) -> int:
    warnings.filterwarnings("ignore")
    path = pathlib.Path(arguments[0]) if arguments and arguments[0].endswith(".json") else DEFAULT
    if not path.is_file():
        print(f"bench/replay.py: {path} is not there; give the list of models", file=sys.stderr)
        return 2
    chosen = [a for a in arguments if not a.endswith(".json")]
    entries = [e for e in json.loads(path.read_text()) if not chosen or e["id"] in chosen]
    build = builder(path.parent)
    bad = 0
    for dtype, training in RUNS:
        total: Counter[str] = Counter()
        worst = 0
        for entry in entries:
            try:
                found = replayed(build, entry, dtype, training)
            except Exception as error:
                print(f"{entry['id']} {dtype} {'train' if training else 'eval'}: not run: {' '.join(str(error).split())[:200]}", flush=True)
                total["not run"] += 1
                continue
            total.update(models=1, sites=found["sites"], additive=found["additive"])
            worst = max(worst, found["worst"])
            bad += bool(found["wrong"])
            for text in found["wrong"]:
                print(f"{entry['id']} {dtype} {'train' if training else 'eval'}: {text}", flush=True)
        print(f"{dtype:<9} {'train' if training else 'eval':<6} {total['models']:>3} models  {total['sites']:>4} sites  worst {worst} ulp  "
              f"{total['additive']} streams are the sum of their writes  {total['not run']} not run", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
