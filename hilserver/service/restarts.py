"""Back-off of a service that systemd starts again after each failure: the more starts came to nothing, the longer."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from pathlib import Path
from typing import Self

from hilserver.service.notify import Notifier

_log = logging.getLogger(__name__)

FIRST, LONGEST = 1.0, 60.0
"""Seconds before a start after one failure, which double with each further one; at most."""
STABLE_AFTER = 60.0
"""Seconds of running after which a start counts as a success."""


class Restarts:
    """Counts starts that came to nothing in ``file``; without one (None), nothing is counted and nothing delayed."""

    def __init__(self, file: Path | None) -> None:
        self._file = file

    @classmethod
    def of_service(cls) -> Self:
        """Of a systemd service, whose runtime directory outlives its restarts, but not a stop or a reboot."""
        folder = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
        return cls(Path(folder) / "failures" if folder else None)

    @property
    def failures(self) -> int:
        """Starts in a row that came to nothing."""
        try:
            return int(self._file.read_text()) if self._file is not None else 0
        except (OSError, ValueError):
            return 0

    def delay(self) -> float:
        """Seconds to wait before this start."""
        doublings = min(self.failures, 100) - 1
        return min(FIRST * 2.0**doublings, LONGEST) if doublings >= 0 else 0.0

    def wait(self, notifier: Notifier) -> None:
        """Wait as long as the failures before this start ask for, and count it: as a failure until it succeeds."""
        if (delay := self.delay()) > 0.0:
            last = f"last {self.failures} starts" if self.failures > 1 else "last start"
            text = f"the {last} came to nothing: this one begins in {delay:g} s"
            _log.warning("%s", text)
            notifier.status(text)
            time.sleep(delay)
        self._begin()

    def _begin(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.write_text(str(self.failures + 1))

    def succeed(self) -> None:
        """The run is stable, or ended in order."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.unlink(missing_ok=True)
