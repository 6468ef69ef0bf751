"""A process that ends with the one that started it, even if that one is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import sys


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent dies (Linux; it holds beyond exec)."""
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)  # 1: PR_SET_PDEATHSIG
    if os.getppid() != parent:  # died before the line above
        sys.exit(1)
