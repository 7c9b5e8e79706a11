"""The plan that mends what a report found, as Python to paste: `skipway check --fix-plan`."""

from typing import Any

from skipway import _registry
from skipway.report._escape import plain


def fix_plan(report: dict[str, Any]) -> str:
    """Lines of Python that change the joins of which the findings tell; findings that no rewire mends are comments. "" where nothing was found."""
    found = report["findings"]
    if not found:
        return ""
    steps: dict[str, list[str]] = {}
    left = []
    for finding in found:
        mend = getattr(_registry.load("skipway.rules", finding["rule"]), "mend", None)
        step = mend(finding["where"], finding["values"]) if mend is not None else None
        where = repr(finding["where"]) if finding["where"] else "the model"
        name = f"{finding['code']} {finding['rule']} at {where}"
        if step is None:
            left.append(name)
        else:
            steps.setdefault(step, []).append(name)
    mended = sum(len(names) for names in steps.values())
    lines = [f"# {report['wiring']['model']}: {mended} of {len(found)} finding{'s' if len(found) > 1 else ''} mended by changing joins"]
    if steps:
        lines += ["import skipway", "", "plan = (", "    skipway.rewire(model, *inputs)"]
        lines += [f"    {plain(step)}  # {plain('; '.join(names))}" for step, names in steps.items()]
        lines += [")", "print(plan)             # every edit before it happens",
                  "edit = plan.apply()     # edit.verify(*inputs), edit.save(path), edit.undo()"]
    lines += [f"# left, to be mended in the source: {plain(name)}" for name in left]
    return "\n".join(lines) + "\n"
