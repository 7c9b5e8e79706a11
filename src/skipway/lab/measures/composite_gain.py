"""composite_gain: the largest absolute row sum of the product of all lane mixers of the main stream, mixers being means over tokens.

It bounds by how much the skip path alone may enlarge a signal from the first sublayer to the last; it is 1 for doubly stochastic mixers.
Source: Xie et al., mHC: Manifold-Constrained Hyper-Connections, 2025, arXiv 2512.24880, section 3.1.
"""

from skipway._errors import SkipwayError
from skipway.lab._measure import ROWS, evaluating
from skipway.lab.measures._base import Look
from skipway.lab.records import finite
from skipway.lab.tasks import Batch
from skipway.probing import probe


def value(look: Look) -> float | None:
    """None for a model of one lane, or without a join."""
    rows = Batch(look.batch.inputs[:ROWS], look.batch.targets[:ROWS])
    with evaluating(look.model):
        try:
            table = probe(look.model, rows.inputs)
        except SkipwayError:
            return None                     # as `depths` notes in the trial's row
    main = table.rows[0].stream
    gains = [r.lanes["gain_from_start"] for r in table.rows if r.stream == main and r.lanes and "gain_from_start" in r.lanes]
    return finite(gains[-1]) if gains else None
