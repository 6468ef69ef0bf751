"""A stand-by of an I/O process: it has imported everything, and waits for a line to take over the device.

Started by the supervisor as ``python -m hilserver.realtime.stand_by FILE PID``, like `hilserver.realtime.worker`. The
process calls itself (``/proc/PID/comm``, as ``ps`` and ``top`` show it) hil-stand-by, and hil-worker from then on.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from hilserver.driver import Driver
from hilserver.realtime.reports import send_report
from hilserver.realtime.worker import serve

WAITING, WORKING = "hil-stand-by", "hil-worker"
"""Names of the process; the first one is also the key of its report that it waits."""


def wait(driver: Driver) -> bool:
    """Prepare everything but the device, then wait; False if the supervisor has ended or no longer needs a stand-by."""
    _call_itself(WAITING)
    driver.prepare()
    send_report(**{WAITING: True})
    needed = bool(sys.stdin.readline())
    _call_itself(WORKING)
    return needed


def _call_itself(name: str) -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name)


if __name__ == "__main__":
    sys.exit(serve(Path(sys.argv[1]), int(sys.argv[2]), wait))
