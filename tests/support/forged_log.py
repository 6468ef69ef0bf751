"""Logs with other contents than were recorded, whole and with right checksums, as a forger would write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.record.format import Event, LogHeader
from hilserver.record.reader import LogReader
from hilserver.record.writer import LogWriter


def rewritten(
    log: Path,
    to: Path,
    *,
    keep: Callable[[int], bool] = lambda row: True,
    rows: Callable[[np.ndarray[Any, Any], int], None] = lambda values, row: None,
    header: Mapping[str, Any] | None = None,
    event: Callable[[int, Event], Event | None] = lambda row, event: event,
) -> Path:
    """A copy of a log with other rows, events or header; whole, with right checksums, as a forger would write it."""
    reader = LogReader(log)
    changed = LogHeader.model_validate({**reader.header.model_dump(), **(header or {})})
    lost, waiting = 0, list[Event]()
    with LogWriter(to, changed) as writer:
        for batch in reader.batches():
            values = np.pad(batch.rows(), ((0, 0), (0, 8)))  # a circuit switched in has more values than the last one
            events: dict[int, list[Event]] = {}
            for row, happened in batch.events:
                if (kept := event(row, happened)) is not None:
                    events.setdefault(row, []).append(kept)
            for number, row in enumerate(range(batch.start, batch.start + len(batch))):
                rows(values[number], row)
                waiting += events.get(row, [])
                if not keep(row):
                    lost += 1
                    continue
                happened_here = [{"kind": "lost", "rows": lost}, *waiting] if lost else waiting
                writer.append(values[number : number + 1], {0: happened_here} if happened_here else None)
                lost, waiting = 0, []
    return to
