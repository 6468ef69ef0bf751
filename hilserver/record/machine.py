"""The computer and the software with which a figure was measured."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import numpy as np


def machine() -> dict[str, str]:
    """Processor, kernel and software versions, for later comparison of figures."""
    return {
        "processor": processor(),
        "cpus": str(len(os.sched_getaffinity(0))),
        "kernel": f"{platform.release()} {platform.version()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "hilserver": version("hilserver"),
    }


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as reported by the kernel."""
    for line in cpuinfo.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()
