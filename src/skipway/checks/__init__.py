"""Runs rules by stage over a recovered wiring and reports what they say."""

from skipway.checks.records import Expect as Expect
from skipway.checks.records import Finding as Finding
from skipway.checks.records import Report as Report
from skipway.checks.run import assert_wired as assert_wired
from skipway.checks.run import check as check
