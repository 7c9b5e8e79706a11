"""Tables of probes built by hand, for the formats that people and programs read."""

import math
from typing import Any

from skipway.probing.probe import with_summary
from skipway.probing.table import Row, Table
from skipway.wiring.structure import Branch, Site, Stream, Wiring

from . import samples

LANES = {"use": [0.25, 0.75], "row_sums": [1.0, 1.0], "column_sums": [0.9, 1.1], "second_singular_value": 0.5, "gain_from_start": 1.25,
         "gain_to_end": 1.5}


def row(index: int, stream: str = "net", **values: Any) -> Row:
    kind = values.pop("kind", ("self_attention", "ffn")[index % 2])
    numbers: dict[str, Any] = {"before": 1.0 + index, "after": 2.0 + index, "branch": 0.5, "ratio": 0.5 / (1 + index), "cosine": 0.1 * (-1) ** index,
                               "influence": 0.01 * (index + 1), "angle": 0.1, "rounded": 0.0, "largest": 10.0, "channel": 3, "rank": 5.0,
                               "nonfinite": 0}
    return Row(stream, index, index // 2, f"{stream}.layers.{index // 2}", kind, "pre", "net.py", 3 + index % 2, **{**numbers, **values})


def site(of: Row) -> Site:
    return Site(of.index, of.layer, of.module, of.file, of.line, "pre", "LayerNorm", (), "identity", 1.0, "none", 1.0, False, False,
                tuple(Branch(kind, (of.module,)) for kind in of.kind.split("+")))


def table(*rows: Row, **other: Any) -> dict[str, Any]:
    made = rows or tuple(row(i) for i in range(4))
    names = dict.fromkeys(r.stream for r in made)
    streams = tuple(Stream(name, True, 1, "embed", "norm", tuple(site(r) for r in made if r.stream == name)) for name in names)
    given = {"model": "Net", "parameters": 1234, "dtype": "float32", "inputs": "random, seed 0", "target": "net.py:Net", "notes": ("one note",),
             "wiring": Wiring(streams, "Net", 1234).to_dict(), **other}
    return with_summary(Table(tuple(made), (), **given)).to_dict()


def with_loss() -> dict[str, Any]:
    rows = tuple(row(i, grad_stream=1e-3 / (i + 1), grad_branch=1e-3, identity=0.5, lesion=0.1 * (2 - i)) for i in range(4))
    return table(*rows, loss=2.5, loss_name="next-token", weights="random, seed 0")


def parallel() -> dict[str, Any]:
    several = row(0, kind="self_attention+ffn", lesion=0.5, lesions={"self_attention": 0.125, "ffn": 0.25})
    return table(several, row(1, lesion=0.1), row(2, lesion=0.2))


def broken() -> dict[str, Any]:
    nan = math.nan
    return table(row(0), row(1), row(2, after=nan, branch=math.inf, ratio=math.inf, influence=nan, largest=nan, nonfinite=7),
                 row(3, before=nan, after=nan, ratio=nan, influence=nan, largest=nan, nonfinite=9))


def two_streams() -> dict[str, Any]:
    return table(*(row(i, "encoder") for i in range(3)), *(row(i, "decoder", lanes=LANES) for i in range(2)))


def hostile() -> dict[str, Any]:
    """Every text is somebody's bad joke."""
    rows = tuple(Row(nasty, 0, 0, nasty, nasty, nasty, nasty, 3, 1.0, 2.0, 1e-9, 1e-9, 0.1, 0.5, 0.1, 0.0, 1e9, 3, 2.0, 0) for nasty in samples.NASTY)
    return table(*rows, model=samples.SCRIPT, target=samples.IMAGE, inputs=samples.QUOTES, weights=samples.LINES, notes=samples.NASTY,
                 loss=1.0, loss_name=samples.RIGHT_TO_LEFT, dtype=samples.IMAGE)
