"""What a command is pointed at: a model, or the JSON file of a report or a wiring."""

import re
from collections.abc import Sequence
from typing import Any

from skipway._errors import UsageError
from skipway.cli._progress import progress
from skipway.report._escape import plain


def stored(target: str) -> bool:
    """Whether a target is a JSON file. A configuration is one, too, behind its kind: hf:path/config.json."""
    return target.endswith(".json") and not re.match(r"[a-z]{2,}:", target)


def reported(target: str, given: Sequence[str], inputs: str | None, config: Sequence[str], mode: str) -> dict[str, Any]:
    """The report about a target, as a dictionary: read from its file, or of stage graph. Raises SkipwayError, one line."""
    if stored(target):
        from skipway.report._load import load
        for option, value in (("--input", given), ("--inputs", inputs), ("--config", config)):
            if value:
                raise UsageError(f"{option}: it is for a model, and {target} is a file; leave it out")
        return load(target)
    from skipway.checks.config import read
    from skipway.cli._values import expectation
    declared = read()
    options = {"stage": "graph", "expect": expectation((), declared.expect), "select": declared.select, "ignore": declared.ignore, "hooks": (),
               "dtype": None, "entry_points": None}
    with progress(f"building {plain(target)}") as say:
        from skipway.cli._run import checked
        from skipway.targets import resolve
        found = resolve(target, inputs=tuple(given), inputs_from=inputs, config=tuple(config))
        say(f"checking {plain(target)}")
        return checked(found, mode, options, declared).to_dict()
