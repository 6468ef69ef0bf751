"""MDF4, the measurement format of the automotive tools (ASAM MDF 4.10), written by asammdf."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from hilserver.errors import HilserverError
from hilserver.record.format import EVENTS, METADATA_KEY

TIME = "time"
"""The column that is the time base of all others."""


class MdfWriter:
    """Writes tables that have a column ``time`` as one group of channels with their units.

    Events are in the attachment ``events.json``, the header of the log in ``hilserver.json``.
    """

    def __init__(self, path: str, schema: pa.Schema) -> None:
        try:
            from asammdf import MDF
        except ImportError:
            raise HilserverError("MDF4 needs asammdf: pip install 'hilserver[export]'.") from None
        self._path = Path(path)
        self._mdf = MDF(version="4.10")
        self._fields = [field for field in schema if field.name not in (TIME, EVENTS)]
        self._header: bytes = (schema.metadata or {}).get(METADATA_KEY, b"{}")
        self._events: list[dict[str, Any]] = []
        self._begun = False

    def write_table(self, table: pa.Table) -> None:
        """Append rows."""
        from asammdf import Signal

        time = table.column(TIME).to_numpy()
        if EVENTS in table.column_names:
            texts = table.column(EVENTS).to_pylist()
            self._events += [
                {"time": float(at), "events": json.loads(text)} for at, text in zip(time, texts, strict=True) if text
            ]
        columns = [np.ascontiguousarray(table.column(field.name).to_numpy()) for field in self._fields]
        if self._begun:
            self._mdf.extend(0, [(time, None), *((column, None) for column in columns)])
            return
        units = [(field.metadata or {}).get(b"unit", b"").decode() for field in self._fields]
        signals = [
            Signal(column, time, name=field.name, unit=unit)
            for field, column, unit in zip(self._fields, columns, units, strict=True)
        ]
        self._mdf.append(signals, comment="hilserver", common_timebase=True)
        self._begun = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                for name, content in (
                    ("hilserver.json", self._header),
                    ("events.json", json.dumps(self._events).encode()),
                ):
                    self._mdf.attach(content, file_name=name, mime="application/json")
                saved = Path(self._mdf.save(self._path, overwrite=True, compression=1))  # asammdf adds a suffix
                saved.replace(self._path)
        finally:
            self._mdf.close()
