"""Measurements at the joins of a model. The public function is `probe`."""

from skipway.probing.probe import probe as probe
from skipway.probing.table import Row as Row
from skipway.probing.table import Summary as Summary
from skipway.probing.table import Table as Table
