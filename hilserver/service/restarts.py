"""Back-off of a service that systemd restarts after each failure: the delay grows with the number of failed starts."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from pathlib import Path
from typing import Self

from hilserver.service.backoff import Backoff
from hilserver.service.notify import Notifier

_log = logging.getLogger(__name__)

STABLE_AFTER = 60.0
"""Running time after which a start counts as successful, s."""


class Restarts:
    """Counts failed starts in ``file``; without a file (None), nothing is counted and no start is delayed."""

    def __init__(self, file: Path | None) -> None:
        self._file = file

    @classmethod
    def of_service(cls) -> Self:
        """The counter of a systemd service: in its runtime directory, which survives restarts but no stop or boot."""
        folder = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
        return cls(Path(folder) / "failures" if folder else None)

    @property
    def failures(self) -> int:
        """The number of consecutive failed starts."""
        try:
            return int(self._file.read_text()) if self._file is not None else 0
        except (OSError, ValueError):
            return 0

    def delay(self) -> float:
        """Seconds to wait before this start."""
        return Backoff(first=1.0, longest=60.0, stable_after=STABLE_AFTER, failures=self.failures).delay

    def wait(self, notifier: Notifier) -> None:
        """Wait for the delay after the failures so far, and count this start: as failed until it succeeds."""
        if (delay := self.delay()) > 0.0:
            last = f"last {self.failures} starts" if self.failures > 1 else "last start"
            text = f"the {last} failed: this one begins in {delay:g} s"
            _log.warning("%s", text)
            notifier.status(text)
            time.sleep(delay)
        self._begin()

    def _begin(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.write_text(str(self.failures + 1))

    def succeed(self) -> None:
        """Note that the run is stable, or has ended in an orderly way."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.unlink(missing_ok=True)
