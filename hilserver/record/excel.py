"""Excel workbooks, written by XlsxWriter."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
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

    Values have 16 digits, one less than in the log; those that are missing or no number are empty cells. Rows wait in a
    temporary folder beside the file, not in memory. Raises OSError if the file can't be written.
    """

    def __init__(self, path: str, schema: pa.Schema) -> None:
        try:
            import xlsxwriter
        except ImportError:
            raise HilserverError("Excel needs XlsxWriter: pip install 'hilserver[export]'.") from None
        self._path, self._errors = path, xlsxwriter.exceptions
        self._names = [field.name for field in schema if field.name != EVENTS]
        if len(self._names) > MOST_COLUMNS:
            raise HilserverError(f"{path}: Excel has at most {MOST_COLUMNS} columns: choose fewer.")
        Path(path).open("wb").close()  # XlsxWriter would find out in the end
        self._waiting = tempfile.TemporaryDirectory(prefix="hilserver-excel-", dir=Path(path).parent)
        self._book: Any = xlsxwriter.Workbook(path, {"constant_memory": True, "tmpdir": self._waiting.name})
        self._sheet = self._book.add_worksheet("data")
        self._sheet.freeze_panes(HEAD, 1)
        bold = self._book.add_format({"bold": True})
        for place, name in enumerate(self._names):  # as text: a name may look like a formula
            self._sheet.write_string(0, place, name, bold)
        for place, name in enumerate(self._names):
            if unit := (schema.field(name).metadata or {}).get(b"unit", b"").decode():
                self._sheet.write_string(1, place, unit)
        self._rows = HEAD
        self._events: list[tuple[float | None, str]] = []

    def write_table(self, table: pa.Table) -> None:
        """Append rows. Raises `HilserverError` if Excel has no room for them."""
        if EVENTS in table.column_names:
            times = table.column("time").to_pylist() if "time" in self._names else [None] * len(table)
            for time, text in zip(times, table.column(EVENTS).to_pylist(), strict=True):
                self._events += [(time, json.dumps(event, ensure_ascii=False)) for event in json.loads(text or "[]")]
        if max(self._rows + len(table), HEAD + len(self._events)) > MOST_ROWS:
            raise HilserverError(f"{self._path}: Excel has at most {MOST_ROWS - HEAD} rows: choose fewer of them.")
        columns = [table.column(name).to_numpy() for name in self._names]
        for values in zip(*columns, strict=True):
            for place, value in enumerate(values):
                if np.isfinite(value):
                    self._sheet.write_number(self._rows, place, value)
            self._rows += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._write_events()
        else:
            self._book.filename = os.devnull  # what is not complete is not wanted
        try:
            self._book.close()
        except self._errors.FileCreateError as failed:
            raise failed.args[0] from None  # an OSError
        except self._errors.FileSizeError:
            raise HilserverError(
                f"{self._path}: more than the 4 GB of a sheet: choose fewer rows or columns."
            ) from None
        finally:
            self._waiting.cleanup()

    def _write_events(self) -> None:
        sheet = self._book.add_worksheet("events")
        for row, texts in enumerate((["time", "event"], ["s"])):
            sheet.write_row(row, 0, texts)
        for row, (at, text) in enumerate(self._events, HEAD):
            if at is not None:
                sheet.write_number(row, 0, at)
            cut = f"… ({len(text)} characters)"
            sheet.write_string(row, 1, text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - len(cut)] + cut)
