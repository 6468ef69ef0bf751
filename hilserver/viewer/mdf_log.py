"""MDF4 files by channel, read with asammdf."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.record.format import Event, LogHeader, RecordError, decode
from hilserver.viewer.measurement import Measurement
from hilserver.viewer.moments import MomentList

HELD_BYTES = 256_000_000
"""Memory for channels that were read."""


class MdfLog(Measurement):
    """An MDF4 file: one signal per numeric channel, with the time base of its group.

    A name that occurs in several groups is ``name [group]`` from the second one on. Files that hilserver has exported
    also have their moments.

    Raises `RecordError` if the file can't be read, `HilserverError` without asammdf.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            from asammdf import MDF
        except ImportError:
            raise HilserverError("MDF4 needs asammdf: pip install 'hilserver[export]'.") from None
        try:
            self._mdf: Any = MDF(path)
        except Exception as error:  # asammdf raises many kinds for a damaged file
            raise RecordError(path, f"can't be read as MDF4: {str(error).splitlines()[0]}.") from error
        self._lock = threading.Lock()
        self._bases: dict[int, Floats] = {}
        self._held: OrderedDict[tuple[int, int], Floats] = OrderedDict()
        self._places: dict[str, tuple[int, int]] = {}
        units: dict[str, str] = {}
        groups: list[Any] = self._mdf.groups
        for group, content in enumerate(groups):
            master = self._mdf.masters_db.get(group)
            if master is None:
                continue
            for index, channel in enumerate(content.channels):
                if index != master and _is_number(channel):
                    name = channel.name if channel.name not in units else f"{channel.name} [{group}]"
                    self._places[name], units[name] = (group, index), channel.unit or ""
        if not units:
            raise RecordError(path, "has no channel with numbers over time.")
        self.units = units
        self._read_start()

    def times(self, signal: str) -> Floats:
        """See `Measurement`."""
        return self._base(self._places[signal][0])

    def read(self, signal: str, start: int, stop: int) -> Floats:
        """See `Measurement`."""
        self.require(signal)
        group, index = self._places[signal]
        if stop <= start:
            return np.empty(0)
        return self._samples(group, index)[start:stop]

    def close(self) -> None:
        """See `Measurement`."""
        with self._lock:
            self._mdf.close()

    def _base(self, group: int) -> Floats:
        with self._lock:
            if group not in self._bases:
                self._bases[group] = np.asarray(self._mdf.get_master(group), dtype=np.float64)
            return self._bases[group]

    def _samples(self, group: int, index: int) -> Floats:
        """All samples of a channel; those of the last ones are kept: asammdf can't read parts of long channels."""
        with self._lock:
            if (group, index) not in self._held:
                try:
                    found, invalid = self._mdf.get(group=group, index=index, samples_only=True)
                    if found.dtype.kind not in "biuf":  # a conversion to texts, as of states
                        found, invalid = self._mdf.get(group=group, index=index, samples_only=True, raw=True)
                    samples = np.array(found, dtype=np.float64)
                except Exception as error:  # of many kinds, as when it is opened
                    raise RecordError(self.path, f"can't be read: {str(error).splitlines()[0]}.") from error
                if invalid is not None:
                    samples[np.asarray(invalid, dtype=bool)] = np.nan
                self._held[group, index] = samples
                while len(self._held) > 1 and sum(kept.nbytes for kept in self._held.values()) > HELD_BYTES:
                    self._held.popitem(last=False)
            self._held.move_to_end((group, index))
            return self._held[group, index]

    def _read_start(self) -> None:
        """Start and moments: of hilserver's own files from the attachments, of others from the file's header."""
        attached: dict[str, bytes] = {}
        for index, _ in enumerate(self._mdf.attachments):
            with suppress(Exception):  # an attachment that is elsewhere
                data, name, _ = self._mdf.extract_attachment(index=index)
                attached[Path(name).name] = bytes(data)
        start = self._mdf.header.start_time
        self.started = start.timestamp() if isinstance(start, datetime) else None
        with suppress(KeyError, ValueError, TypeError):
            header = LogHeader.model_validate(decode(attached["hilserver.json"]))
            moments = MomentList(header)
            listed: list[dict[str, Any]] = json.loads(attached["events.json"])
            events: list[tuple[float, Event]] = [
                (float(at["time"]), decode(json.dumps(event))) for at in listed for event in at["events"]
            ]
            if {"mode", "fault"} <= set(self.units):
                times = self.times("mode")
                moments.add_modes(times, self.read("mode", 0, len(times)), self.read("fault", 0, len(times)))
            moments.add_events(events)
            self.moments = moments.in_order()
            first = self.span[0]
            utc = float(self.read("utc", 0, 1)[0]) if "utc" in self.units else np.nan
            known = utc if np.isfinite(utc) else datetime.fromisoformat(header.started).timestamp()
            self.started = known - first


def _is_number(channel: Any) -> bool:
    """Whether the values of a channel, as stored, are single numbers."""
    try:
        kind = np.dtype(channel.dtype_fmt)
    except TypeError:  # of a kind that has no such description, as structures
        return False
    return kind.kind in "biuf" and kind.shape == ()
