"""Says what to install where a part of the extra `lab` is missing."""

import importlib.util

from skipway._errors import UsageError

PARTS = ("scipy", "pydantic", "yaml", "safetensors")
PACKAGES = {"yaml": "pyyaml", "sklearn": "scikit-learn"}            # where the name to install is not the name to import


def check(*modules: str) -> None:
    """Raises UsageError where one of the modules (default: all of the extra) cannot be found."""
    missing = [PACKAGES.get(m, m) for m in modules or PARTS if importlib.util.find_spec(m) is None]
    if missing:
        raise UsageError(f"skipway compare needs {', '.join(missing)}, which is not installed; run: pip install 'skipway[lab]'")
