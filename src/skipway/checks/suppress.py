"""`# skipway: ignore[SKW101]` on a finding's source line takes it out; without a list it takes out every finding of the line."""

import linecache
import re

from skipway.checks.records import Finding

_COMMENT = re.compile(r"#\s*skipway:\s*ignore(?![\w-])(?:\[([^\]]*)\])?")


def suppressed(finding: Finding) -> bool:
    """Whether a comment on the finding's own line names its code or slug."""
    if finding.file is None or finding.line is None:
        return False
    match = _COMMENT.search(linecache.getline(finding.file, finding.line))
    if match is None:
        return False
    if match.group(1) is None:
        return True
    named = [part.strip() for part in match.group(1).split(",")]
    return finding.code in named or finding.rule in named
