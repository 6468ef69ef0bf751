"""Builds the compiled program for a server: ``python -m hilserver.realtime.compile``.

A process of its own, so that the server still reacts to signals. If several servers start at the same time, one builds
while the others wait.
"""

from __future__ import annotations

from hilserver.compiler import standard_program
from hilserver.realtime.reports import send_report

if __name__ == "__main__":
    standard_program()
    send_report(ready=True)
