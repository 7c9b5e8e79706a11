"""The same wirings as a hypothesis strategy; a failing one shrinks to few blocks of the plainest parts."""

from hypothesis import strategies as st

from .chooser import Chooser
from .generate import RandomWiring, random_wiring


@st.composite
def wirings(draw: st.DrawFn) -> RandomWiring:
    """(model, inputs, truth)."""
    return random_wiring(Chooser(lambda options: draw(st.sampled_from(options))))
