"""Facts of the machine and the source that a trial's row keeps: versions, processor, memory, git state."""

import functools
import importlib.metadata
import os
import pathlib
import platform
import subprocess
import sys
from typing import Any

PACKAGES = ("skipway", "torch", "numpy", "scipy", "safetensors")


def settings(threads: int) -> None:
    """What every worker sets before its first trial: its threads, and numbers too small for a normal float taken as zero."""
    import torch
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)          # vanishing gradients would otherwise be counted in microcode, at a tenth of the speed


@functools.cache
def installed() -> dict[str, str | None]:
    """Versions of the packages that a trial's numbers depend on. Loads none of them."""
    return {name: _version(name) for name in PACKAGES}


def versions(device: str) -> dict[str, Any]:
    """Of Python, the packages and the machine."""
    import torch
    return {"python": platform.python_version(), **installed(), "system": f"{platform.system()} {platform.release()}",
            "processor": _processor(), "cores": os.cpu_count(), "threads": torch.get_num_threads(), "device": device,
            **({"gpu": torch.cuda.get_device_name()} if device.startswith("cuda") else {})}


def git() -> dict[str, Any]:
    """Commit of the working folder and whether files differ from it; empty where it is no repository."""
    def ask(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", *words], capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None
    commit = ask("rev-parse", "HEAD")
    return {} if commit is None else {"commit": commit, "changed": len((ask("status", "--porcelain") or "").splitlines())}


def reset_peak(device: str) -> None:
    """Begins the measurement of a new peak, where the system can."""
    if device.startswith("cuda"):
        import torch
        torch.cuda.reset_peak_memory_stats()
    elif sys.platform == "linux":
        try:
            pathlib.Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            return                          # a container may forbid it; the peak is then the process's own


def peak(device: str) -> int | None:
    """Bytes at the peak: of the process, or of the device."""
    if device.startswith("cuda"):
        import torch
        return int(torch.cuda.max_memory_allocated())
    if sys.platform == "linux":
        for line in pathlib.Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return None
    import resource
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def _processor() -> str:
    if sys.platform == "linux":
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
