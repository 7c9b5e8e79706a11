"""Statistics of a study: intervals, paired differences, the correction over variants, the sequential design, verdicts. Needs no torch."""

from skipway.lab.stats.paired import Difference as Difference
from skipway.lab.stats.paired import Interval as Interval
from skipway.lab.stats.paired import difference as difference
from skipway.lab.stats.paired import interval as interval
from skipway.lab.stats.paired import needed as needed
from skipway.lab.stats.verdict import Comparison as Comparison
from skipway.lab.stats.verdict import Design as Design
from skipway.lab.stats.verdict import compare as compare
from skipway.lab.stats.verdict import tuned as tuned
