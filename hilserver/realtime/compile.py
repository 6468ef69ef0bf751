"""Builds the compiled program for a server: ``python -m hilserver.realtime.compile``.

A separate process, so that the server still reacts to signals. If several servers start at the same time, one builds
while the others wait.
"""

from __future__ import annotations

from hilserver.compiler.loading import found_file
from hilserver.realtime.reports import send_report

if __name__ == "__main__":
    if found_file() is None:
        from hilserver.compiler.storing import build_once  # loads Numba

        build_once()
    send_report(ready=True)
