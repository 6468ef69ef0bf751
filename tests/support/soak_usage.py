"""A soak test's memory and descriptors: what each process of a server holds over time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

MIB = 1024.0
"""KiB."""


@dataclass(frozen=True)
class Use:
    """What a process holds: resident memory that is its own or its program's, KiB; open descriptors."""

    time: float
    memory: int
    descriptors: int


class Usage:
    """What each process of a server holds over time. Shared memory of the ring is not counted: it has a fixed size."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, int], list[Use]] = {}
        self._began = time.monotonic()

    def look(self, pids: dict[str, int]) -> None:
        """Note what these processes hold now; those that are gone are left out."""
        for name, pid in pids.items():
            with contextlib.suppress(OSError, KeyError):
                status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
                memory = sum(int(status[key].split()[0]) for key in ("RssAnon", "RssFile"))
                descriptors = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
                use = Use(time.monotonic() - self._began, memory, descriptors)
                self.of.setdefault((name, pid), []).append(use)

    def grown(self, warm_up: float) -> Iterator[Grown]:
        """How much each process that lasted longer than ``warm_up`` (s) has grown since then."""
        for (name, pid), uses in self.of.items():
            after = [use for use in uses if use.time - uses[0].time >= warm_up]
            if len(after) < 5:
                continue
            few = max(len(after) // 10, 2)
            begin, end = after[:few], after[-few:]
            yield Grown(
                name,
                pid,
                hours=(after[-1].time - after[0].time) / 3600,
                memory=(median(use.memory for use in end) - median(use.memory for use in begin)) / MIB,
                most=max(use.memory for use in after) / MIB,
                descriptors=round(median(use.descriptors for use in end) - median(use.descriptors for use in begin)),
            )


@dataclass(frozen=True)
class Grown:
    """A process since its warm-up: MiB more, the most it held (MiB), descriptors more."""

    name: str
    pid: int
    hours: float
    memory: float
    most: float
    descriptors: int

    def __str__(self) -> str:
        return (
            f"{self.name:12}{self.pid:>8}  {self.hours * 60:7.1f} min  {self.most:8.1f} MiB at most  "
            f"{self.memory:+7.2f} MiB  {self.descriptors:+3d} descriptors"
        )
