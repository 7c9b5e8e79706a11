"""skipway: the toolkit for residual (skip) connections in PyTorch.

A residual rule is a pair (read, write) on a stream, and a join is a fact of the data flow.
"""

from skipway.checks import Expect as Expect
from skipway.checks import Finding as Finding
from skipway.checks import Report as Report
from skipway.checks import assert_wired as assert_wired
from skipway.checks import check as check
from skipway.wiring import Branch as Branch
from skipway.wiring import Site as Site
from skipway.wiring import Stream as Stream
from skipway.wiring import Wiring as Wiring
from skipway.wiring import trace as trace
