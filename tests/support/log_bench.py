"""Logs for the tests of recordings: headers, rows, parts, and comparison bit for bit."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hilserver.record.format import Event, LogHeader, circuit_event
from hilserver.record.reader import LogReader, LogTable
from hilserver.record.writer import LogWriter

COLUMNS = ("tick", "time", "raw.p_A")
FIRST_CIRCUIT = ("supply.p", "main.x")
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
Rows = NDArray[np.float64]


def header(**changes: Any) -> LogHeader:
    packed = {"index": np.array([3, -1, 2**62]), "value": np.array([0.1, -0.0, np.nan, np.inf, 5e-324])}
    values: dict[str, Any] = {
        "software": "hilserver 0.1.0",
        "rig": "lab",
        "started": "2026-11-20T10:12:00+00:00",
        "period_s": 1e-3,
        "columns": COLUMNS,
        "circuit_names": FIRST_CIRCUIT,
        "configuration": {"rig": {"supply": "140 bar", "note": "20 °C"}, "limits": [1, 2.5, None, True]},
        "packed": packed,
        "units": {"time": "s", "raw.p_A": "V", "supply.p": "Pa"},
    }
    return LogHeader(**(values | changes))


def random_rows(count: int, width: int = 5, seed: int = 0) -> Rows:
    """Values of all kinds: every bit pattern is a value that must survive."""
    generator = np.random.default_rng(seed)
    return generator.integers(0, 2**64, size=(count, width), dtype=np.uint64).view(np.float64)


def write(path: Path, rows: Rows, events: dict[int, list[Event]] | None = None, **options: Any) -> None:
    with LogWriter(path, header(), **options) as writer:
        writer.append(rows, events)


def assert_same_bits(actual: Rows, expected: Rows) -> None:
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(
        np.ascontiguousarray(actual).view(np.uint64), np.ascontiguousarray(expected).view(np.uint64)
    )


def all_rows(reader: LogReader) -> Rows:
    """The rows of a log whose circuit has always two values."""
    return np.concatenate([np.empty((0, 5)), *(batch.rows() for batch in reader.batches())])


def fixed_part(table: LogTable) -> Rows:
    return np.stack([table.columns[name] for name in COLUMNS], axis=1)


def numbered_rows(count: int, width: int = 5) -> Rows:
    rows = np.random.default_rng(1).normal(size=(count, width))
    rows[:, 0] = np.arange(count)
    return rows


def write_numbered_parts(path: Path, count: int = 200, rows_per_part: int = 50) -> Rows:
    """A run whose circuit changes in row 90 to one with three values."""
    rows = numbered_rows(count, 6)
    with LogWriter(path, header(), batch_rows=10, max_rows=rows_per_part) as writer:
        writer.append(rows, {90: [circuit_event(("a", "b", "c"), {"n": 3})]})
    return rows


def make_files(folder: Path, names: str, size: int = 1000) -> None:
    """Files with these names, the last one of now, each one older than the next by an hour."""
    for number, name in enumerate(reversed(names.split())):
        path = folder / name
        path.write_bytes(bytes(size))
        os.utime(path, (NOW - 3600 * number, NOW - 3600 * number))
