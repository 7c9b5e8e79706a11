"""Random wirings whose truth is known by construction, for tests and benchmarks."""

from .generate import RandomWiring as RandomWiring
from .generate import random_wiring as random_wiring
from .truth import Fault as Fault
from .truth import SiteTruth as SiteTruth
from .truth import Truth as Truth
from .truth import compare as compare
