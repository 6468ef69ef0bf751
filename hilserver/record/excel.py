"""Excel workbooks, written by XlsxWriter."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from hilserver.errors import HilserverError
from hilserver.record.format import EVENTS

MOST_ROWS, MOST_COLUMNS = 1_048_576, 16_384
"""Of a sheet of Excel."""
HEAD = 2
"""Rows above the values: names and units."""
LONGEST_TEXT = 32_767
"""Characters of a cell."""


class ExcelWriter:
    """Writes tables to the sheet ``data``: names, units, then the rows; and events to the sheet ``events``.

    Values have 16 digits, one less than in the log; those that are missing or no number are empty cells. Rows are
    written as they come: the workbook is never in memory.
    """

    def __init__(self, path: str, schema: pa.Schema) -> None:
        try:
            import xlsxwriter
        except ImportError:
            raise HilserverError("Excel needs XlsxWriter: pip install 'hilserver[export]'.") from None
        self._path, self._too_large = path, xlsxwriter.exceptions.FileSizeError
        self._names = [field.name for field in schema if field.name != EVENTS]
        if len(self._names) > MOST_COLUMNS:
            raise HilserverError(f"{path}: Excel has at most {MOST_COLUMNS} columns: choose fewer (--columns).")
        self._book: Any = xlsxwriter.Workbook(path, {"constant_memory": True})
        self._sheet = self._book.add_worksheet("data")
        self._sheet.freeze_panes(HEAD, 1)
        self._sheet.write_row(0, 0, self._names, self._book.add_format({"bold": True}))
        units = [(schema.field(name).metadata or {}).get(b"unit", b"").decode() for name in self._names]
        self._sheet.write_row(1, 0, units)
        self._rows = HEAD
        self._events: list[tuple[float, str]] = []

    def write_table(self, table: pa.Table) -> None:
        """Append rows. Raises `HilserverError` if Excel has no room for them."""
        if self._rows + len(table) > MOST_ROWS:
            most = MOST_ROWS - HEAD
            raise HilserverError(f"{self._path}: Excel has at most {most} rows: keep every n-th (--every), or a part.")
        columns = [table.column(name).to_numpy() for name in self._names]
        for values in zip(*columns, strict=True):
            for place, value in enumerate(values):
                if np.isfinite(value):
                    self._sheet.write_number(self._rows, place, value)
            self._rows += 1
        if EVENTS in table.column_names:
            times = table.column("time").to_pylist() if "time" in self._names else [None] * len(table)
            for time, text in zip(times, table.column(EVENTS).to_pylist(), strict=True):
                self._events += [(time, json.dumps(event, ensure_ascii=False)) for event in json.loads(text or "[]")]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        events = self._book.add_worksheet("events")
        events.write_row(0, 0, ["time", "event"])
        events.write_row(1, 0, ["s", ""])
        for row, (time, text) in enumerate(self._events, HEAD):
            if time is not None:
                events.write_number(row, 0, time)
            events.write_string(row, 1, text[:LONGEST_TEXT])
        try:
            self._book.close()
        except self._too_large:
            text = "more than the 4 GB of a sheet: keep every n-th row (--every), or fewer columns (--columns)."
            raise HilserverError(f"{self._path}: {text}") from None
