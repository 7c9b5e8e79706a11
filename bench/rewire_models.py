"""Rewire on hand-read models: plain everywhere is equal to the last bit, and edits of random sites equal the replayed wiring.

    python bench/rewire_models.py [WIRINGS.json] [ID ...] [--seed N]

The file lists models and their inputs as beside this checkout in shared/truth/ (the default). For each model, in evaluation and in training: `plain`
on every site of its one-lane streams, outputs and all gradients compared bit by bit, undone, and compared again; then ablate, drop and scale on one
site drawn at random, against a run in which the operation of that join is replaced underneath torch's functions. Prints a line a model.
"""

import argparse
import json
import pathlib
import random
import sys
import warnings
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from replay import DEFAULT, builder


def numbers(model: Any, inputs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Floating outputs, and the gradient of every parameter, of a fixed weighted sum."""
    import torch

    from skipway.wiring.record import tensors_in
    torch.manual_seed(0)
    model.zero_grad()
    outputs = [t for t in tensors_in(model(**inputs)) if t.is_floating_point()]
    parts = [(t * torch.linspace(-1, 1, t.numel(), dtype=t.dtype).view(t.shape)).sum() for t in outputs if t.requires_grad]
    sum(parts[1:], parts[0]).backward()
    return [t.detach().clone() for t in outputs], {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def same(a: tuple[list[Any], dict[str, Any]], b: tuple[list[Any], dict[str, Any]]) -> bool:
    """Whether both are equal to the last bit; what is not a number counts as equal to itself."""
    import torch
    return len(a[0]) == len(b[0]) and a[1].keys() == b[1].keys() and all(
        torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in [*zip(a[0], b[0]), *((a[1][k], b[1][k]) for k in a[1])])


def plain_everywhere(model: Any, inputs: dict[str, Any]) -> tuple[int, int, str]:
    """Sites that were rewired, sites of streams that cannot be, and what is wrong."""
    import skipway
    before, keys = numbers(model, inputs), list(model.state_dict())
    if not same(before, numbers(model, inputs)):
        return 0, 0, "two runs of the model itself differ"
    rewiring = skipway.rewire(model, **inputs)
    plan, done, left = None, 0, 0
    for name in dict.fromkeys(n for n, _, _ in rewiring.listed):
        selection = (plan or rewiring).sites(stream=name)
        if any(isinstance(s, Exception) for s in selection.places):
            left += len(selection)
            continue
        plan, done = selection.plain(), done + len(selection)
    if plan is None:
        return 0, left, ""
    edit = plan.apply()
    after = numbers(model, inputs)
    edit.undo()
    wrong = "" if same(before, after) else "plain is not equal to the last bit"
    if not same(before, numbers(model, inputs)) or list(model.state_dict()) != keys:
        wrong = wrong or "undo does not give the model back"
    return done, left, wrong


def replayed(model: Any, inputs: dict[str, Any], draw: random.Random) -> list[str]:
    """What is wrong with three edits of one random site."""
    import torch

    import skipway
    from skipway.wiring.record import tensors_in
    wiring = skipway.trace(model, **inputs)
    rewiring = skipway.rewire(model, **inputs)
    free = [s for s in rewiring.spots if not isinstance(s, Exception)]
    if not free:
        return []
    spot = draw.choice(free)
    wrong = []
    for action, options, change in (("ablate", {}, lambda x, y: y), ("drop", {}, lambda x, y: x),
                                    ("scale", {"branch": 0.5, "skip": 2.0}, lambda x, y: x * 2.0 + y * 0.5)):
        want = underneath(model, inputs, wiring, spot, change)
        edit = getattr(rewiring.sites(spot.site.index, stream=spot.stream), action)(**options).apply()
        torch.manual_seed(0)
        with torch.no_grad():
            got = [t for t in tensors_in(model(**inputs)) if t.is_floating_point()]
        edit.undo()
        if not all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(got, want, strict=True)):
            wrong.append(f"{action} at {spot} is not the replayed wiring")
    return wrong


def underneath(model: Any, inputs: dict[str, Any], wiring: Any, spot: Any, change: Any) -> list[Any]:
    """The outputs of a run in which the operation of one join is replaced."""
    import torch

    from skipway.probing._plan import _plan
    from skipway.wiring.address import addresses
    from skipway.wiring.record import tensors_in
    from skipway.wiring.watch import unmet, watch
    facts = wiring.facts
    flow = next(f for f in facts.flows if f.stream is not None and f.stream.name == spot.stream)
    place = flow.places[spot.site.index]
    plan = _plan(facts.graph, addresses(facts.record, {place.join.node, place.join.shortcut, place.join.branch}), spot.stream, spot.site, place, None)
    found: list[Any] = []

    def meet(func: Any, args: Any, kwargs: Any) -> Any:
        x, y = args[plan.shortcut], args[1 - plan.shortcut]
        out = change(x.clone(), y)
        return args[0].copy_(out) if func._schema.name.endswith("_") else out.expand(torch.broadcast_shapes(x.shape, y.shape)).clone()

    def finish(out: Any, mode: Any) -> None:
        if mode.missed():
            raise unmet(mode)
        found.extend(t.clone() for t in tensors_in(out) if t.is_floating_point())

    torch.manual_seed(0)
    watch(model, (), inputs, {plan.join: meet}, finish=finish)
    return found


def main() -> int:
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", nargs="*", help="a list of wirings, and ids to run only those")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="the first eight models")
    chosen = parser.parse_args()
    path = next((pathlib.Path(w) for w in chosen.what if w.endswith(".json")), DEFAULT)
    if not path.is_file():
        print(f"bench/rewire_models.py: {path} is not there; give the list of models", file=sys.stderr)
        return 2
    ids = [w for w in chosen.what if not w.endswith(".json")]
    build, draw = builder(path.parent), random.Random(chosen.seed)
    models = sites = bad = 0
    for entry in json.loads(path.read_text())[:8 if chosen.quick else None]:
        if ids and entry["id"] not in ids:
            continue
        wrong, left = [], 0
        for training in (False, True):
            model, inputs = build(entry)
            model.train(training)
            if training and entry["id"] == "cvt":           # batch norm over one value cannot train
                continue
            done, left, said = plain_everywhere(model, inputs)
            wrong += [said] if said else []
            sites += done
        model, inputs = build(entry)
        wrong += replayed(model.eval(), inputs, draw)
        models += 1
        bad += bool(wrong)
        print(f"{entry['id']:<28} {'; '.join(wrong) or 'equal'}{f'; {left} sites of several lanes left' if left else ''}", flush=True)
    print(f"{models} models, {sites} sites of one lane (evaluation and training), {bad} models with a difference")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
