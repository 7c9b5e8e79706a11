"""All look-alikes by name: every public function of the model files here that returns one."""

from collections.abc import Callable
from types import ModuleType

from . import attention, fusions, images, loops, recurrent, schemes
from .parts import LookAlike

FILES: tuple[ModuleType, ...] = (attention, fusions, images, loops, recurrent, schemes)


def _makers(module: ModuleType) -> dict[str, Callable[[], LookAlike]]:
    return {name: value for name, value in vars(module).items() if getattr(value, "__annotations__", {}).get("return") is LookAlike}


LOOKALIKES: dict[str, Callable[[], LookAlike]] = {name: make for module in FILES for name, make in _makers(module).items()}
