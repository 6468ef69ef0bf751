"""MATLAB's own files (MAT, level 5), written by SciPy."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from hilserver.errors import HilserverError
from hilserver.record.format import EVENTS

LONGEST_NAME = 63
"""Letters of a variable's name in MATLAB."""
MOST_ROWS = (1 << 31) // 8 - 100
"""Rows of a column of 8 bytes each: a variable of a MAT file has at most 2 GiB."""
TAKEN = ("info", "events")
"""Variables beside the columns."""


class MatWriter:
    """Writes tables as one column vector per column, under a name that MATLAB accepts (`variables`).

    The structure ``info`` has the original names (``info.names.<variable>``) and the units. Events are the structure
    ``events``: times in s and JSON texts. The columns wait in a temporary folder, not in memory.
    """

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._path = Path(path)
        self._fields = [field for field in schema if field.name != EVENTS]
        names = [field.name for field in self._fields]
        self._names = dict(zip(names, variables(names), strict=True))
        self._waiting = tempfile.TemporaryDirectory(prefix="hilserver-mat-", dir=self._path.parent)
        self._folder = Path(self._waiting.name)
        self._events: list[tuple[float, str]] = []
        self._rows = 0

    def write_table(self, table: pa.Table) -> None:
        """Append rows."""
        for field in self._fields:
            with self._file(field).open("ab") as file:
                file.write(np.ascontiguousarray(table.column(field.name).to_numpy()).astype(_type(field)).tobytes())
        if EVENTS in table.column_names:
            texts = table.column(EVENTS).to_pylist()
            times = table.column("time").to_pylist() if "time" in self._names else [np.nan] * len(texts)
            for time, text in zip(times, texts, strict=True):
                self._events += [(time, json.dumps(event)) for event in json.loads(text or "[]")]
        self._rows += len(table)
        if self._rows > MOST_ROWS:
            raise HilserverError(f"{self._path}: MAT files have at most {MOST_ROWS} rows: keep every n-th (--every).")

    def _file(self, field: pa.Field) -> Path:
        return self._folder / str(self._names[field.name])

    def _content(self) -> dict[str, Any]:
        """All variables; the columns are mapped files, so that they are in memory only while they are written."""
        content: dict[str, Any] = {
            self._names[field.name]: np.memmap(self._file(field), _type(field), "r", shape=(self._rows, 1))
            if self._rows
            else np.empty((0, 1))
            for field in self._fields
        }
        units = {self._names[f.name]: (f.metadata or {}).get(b"unit", b"").decode() for f in self._fields}
        content["info"] = {"names": {variable: name for name, variable in self._names.items()}, "units": units}
        content["events"] = {
            "time": np.array([[time] for time, _ in self._events]).reshape(-1, 1),
            "text": np.array([text for _, text in self._events], dtype=object).reshape(-1, 1),
        }
        return content

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        from scipy.io import savemat

        try:
            if kind is None:
                with self._path.open("wb") as file:
                    savemat(file, self._content(), long_field_names=True, oned_as="column")
        finally:
            self._waiting.cleanup()


def variables(names: Iterable[str]) -> list[str]:
    """Names of variables of MATLAB for these columns: letters, digits and _, each once.

    >>> variables(["channel.p_A", "channel/p_A", "2 times", "info"])
    ['channel_p_A', 'channel_p_A_2', 'x2_times', 'info_2']
    """
    found = list(TAKEN)
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
        plain = (plain if re.match(r"[A-Za-z]", plain) else f"x{plain}")[:LONGEST_NAME]
        variable, number = plain, 1
        while variable in found:
            number += 1
            end = f"_{number}"
            variable = plain[: LONGEST_NAME - len(end)] + end
        found.append(variable)
    return found[len(TAKEN) :]


def _type(field: pa.Field) -> type[np.float64] | type[np.int64]:
    return np.int64 if pa.types.is_integer(field.type) else np.float64
