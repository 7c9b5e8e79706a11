"""The wiring: record -> graph -> joins -> streams. `trace` recovers it, `Wiring` holds it."""

from skipway.wiring.structure import Branch as Branch
from skipway.wiring.structure import Site as Site
from skipway.wiring.structure import Stream as Stream
from skipway.wiring.structure import Wiring as Wiring
from skipway.wiring.trace import trace as trace
