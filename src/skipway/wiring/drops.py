"""Drop-out and drop-path modules, which do nothing in evaluation mode and so leave no operation behind."""

from typing import TYPE_CHECKING

from skipway.wiring.states import State

if TYPE_CHECKING:
    from skipway.wiring.graph import Graph


def dropped(g: "Graph") -> dict[State, str]:
    """States that a drop-path ("path") or drop-out ("dropout") module hands on, by what it is. A rate of 0 is none."""
    found: dict[State, str] = {}
    for call in g.record.calls:
        kind = _kind(call.module)
        for _, n in call.outs if kind else ():
            state = g.state[n]
            if state is not None and found.get(state) != "path":
                found[state] = kind
    return found


def _kind(module: object) -> str:
    name = type(module).__name__.lower()
    if not ("drop" in name or "stochasticdepth" in name) or getattr(module, "_modules", None):
        return ""
    rates = [rate for field in ("drop_prob", "p", "drop_rate") if isinstance(rate := getattr(module, field, None), (int, float))]
    if rates and not any(rates):
        return ""
    return "path" if "path" in name or "stochasticdepth" in name else "dropout"
