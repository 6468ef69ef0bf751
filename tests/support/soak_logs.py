"""What must hold in the logs after a soak test's life of a server: no row is missing unless it is named."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.errors import HilserverError
from hilserver.record.reader import Batch, LogReader
from hilserver.record.run import recorded_command
from hilserver.tick.codes import CommandKind, Mode
from hilserver.tick.row import command_in


@dataclass
class Found:
    """What a log holds: first tick, ticks missed before it, last one; rows; what it names as lost, before it: gap."""

    path: Path
    first: int
    missed: int
    last: int
    rows: int
    gap: int
    lost: int


def look_at_logs(
    new: list[Path], last_tick: int, *, is_whole: bool, recorded: int | None = None, found_later: bool = False
) -> str:
    """Check the logs of a life that has ended: no row is missing unless it is named, and the valve was safe.

    ``is_whole``: to the loop's last tick; else to the one that was ``recorded`` by the server's own account, if given.
    ``found_later``: some of them were out of sight for a while, and rows in them may be named as missing.
    """
    numbers = {path: _part(path) for path in new}
    begins = [p for p in new if not any(_run(o) == _run(p) and numbers[o] < numbers[p] for o in new)]
    logs = sorted((found for path in begins if (found := look_at_log(path)) is not None), key=lambda log: log.first)
    before_all = Found(Path(), -1, 0, -1, 0, 0, 0)
    for before, after in itertools.pairwise([before_all, *logs]):
        missing = after.first - before.last - 1
        named = f"{missing} ticks between {before.path} and {after.path}, {after.gap} are named"
        assert (max(missing - after.missed, 0) == after.gap) or (found_later and missing <= after.gap), named
    end = max(log.last for log in logs)
    if is_whole:
        assert end == last_tick, f"{logs[-1].path} ends with tick {end}, the loop with {last_tick}"
    else:
        least = last_tick - 3000 if recorded is None else recorded
        assert end >= least, f"{logs[-1].path} ends with tick {end}, though {least} was recorded"
    rows, lost, gap = (sum(getattr(log, name) for log in logs) for name in ("rows", "lost", "gap"))
    return f"{'':32}{len(new)} files of {len(logs)} recordings, {rows} rows, {lost} lost, {gap} between, all named"


def _run(path: Path) -> Path:
    return path.with_name(path.name.split(".")[0])


def _part(path: Path) -> int:
    return int(path.name.split(".")[1]) if path.name.count(".") > 1 else 0


def look_at_log(path: Path) -> Found | None:
    """Go through a log and its parts; None where it was ended before its first row."""
    try:
        reader = LogReader(path)
    except HilserverError:
        assert path.stat().st_size == 0, f"{path} has no header"
        return None
    found, state = None, _Rows()
    for batch in reader.batches():
        named = {row - batch.start: event["rows"] for row, event in batch.events if event["kind"] == "lost"}
        if found is None:
            first, missed = (int(batch.column(name)[0]) for name in ("tick", "missed"))
            found = Found(path, first, missed, first, 0, named.get(0, 0), 0)
            named.pop(0, None)
        commands = [
            (row - batch.start, command_in(recorded_command(event, reader.header)).kind)
            for row, event in batch.events
            if event["kind"] == "command"
        ]
        starts = {row for row, kind in commands if kind == CommandKind.START}
        found.lost += state.follow(batch, named, starts)
        found.rows += len(batch)
        found.last = int(batch.column("tick")[-1])
    assert all(damage.lost is None for damage in reader.damages), reader.damages  # a torn end, at most
    return found


class _Rows:
    """Follows the rows of a log: ticks, the command in modes in which the valve must be safe, what leads to RUNNING."""

    def __init__(self) -> None:
        self._last: Any = None

    def follow(self, batch: Batch, named: dict[int, int], starts: set[int]) -> int:
        """Check these rows, in some of which a `start` was taken; returns how many between them are named as lost."""
        tick, missed, mode, command = (batch.column(name) for name in ("tick", "missed", "mode", "valve.main.command"))
        if self._last is not None:
            tick, missed, mode, command = (
                np.concatenate([[last], values])
                for last, values in zip(self._last, (tick, missed, mode, command), strict=True)
            )
            named = {row + 1: count for row, count in named.items()}
            starts = {row + 1 for row in starts}
        missing = np.diff(tick) - missed[1:] - 1
        lost = np.zeros(len(missing))
        for row, count in named.items():
            lost[row - 1] = count
        wrong = np.where(lost > 0, missing < lost, missing != 0)  # ticks missed in lost rows are missing too
        assert not wrong.any(), f"{missing[wrong][0]:.0f} rows missing behind tick {tick[:-1][wrong][0]:.0f}, not named"
        begins = np.flatnonzero((mode[1:] == Mode.RUNNING) & (mode[:-1] != Mode.RUNNING) & (lost == 0)) + 1
        assert {*begins} <= starts, "RUNNING without a person's start"
        is_safe = np.isin(mode, (Mode.SAFE, Mode.FAULT))
        both = is_safe[1:] & is_safe[:-1]
        assert (np.abs(command[1:][both]) <= np.abs(command[:-1][both]) + 1e-12).all(), "it opens the valve when safe"
        self._last = (tick[-1], missed[-1], mode[-1], command[-1])
        return int(lost.sum())
