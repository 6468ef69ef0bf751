"""What happened in a run of hilserver, from its log: commands, switches, changes of mode, faults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from pydantic import ValidationError

from hilserver.circuit.change import change_text
from hilserver.numerics.arrays import Floats
from hilserver.record.command_text import command_text
from hilserver.record.format import Event, LogHeader, is_circuit
from hilserver.record.notes import LogNote
from hilserver.record.row_events import ROW_EVENTS, row_event_text
from hilserver.tick.codes import Mode, fault_text
from hilserver.viewer.measurement import Moment

_FAULTS = (Mode.FAULT, Mode.SAFE_NOT_CONFIRMED)


class MomentList:
    """Collects the moments of a run, whose rows are given in order, some at a time."""

    def __init__(self, header: LogHeader) -> None:
        self.found: list[Moment] = []
        self._header = header
        self._limits = [name.removeprefix("limit.") for name in header.columns if name.startswith("limit.")]
        self._circuit: Mapping[str, Any] = header.packed.get("source", {})
        self._mode: float | None = None

    def add_modes(self, times: Floats, modes: Floats, faults: Floats) -> None:
        """Add the changes of mode in these rows."""
        before = np.concatenate([modes[:1] if self._mode is None else [self._mode], modes[:-1]])
        for row in map(int, np.flatnonzero(modes != before)):
            mode, fault = int(modes[row]), int(faults[row])
            name = Mode(mode).name.replace("_", " ") if mode in list(Mode) else f"mode {mode}"
            text = f"{name}: {fault_text(fault, self._limits)}" if fault else name
            self.found.append(Moment(float(times[row]), "fault" if mode in _FAULTS else "mode", text))
        if len(modes):
            self._mode = float(modes[-1])

    def add_events(self, events: Iterable[tuple[float, Event]]) -> None:
        """Add events of the log with their times."""
        for time, event in events:
            kind = event.get("kind")
            if is_circuit(event):
                source = event.get("packed", {}).get("source")  # an exported log has no packed circuits
                text = "circuit switched" if source is None else f"switched: {change_text(self._circuit, source)}"
                self._circuit = source or self._circuit
                self.found.append(Moment(time, "switch", text))
            elif kind in ROW_EVENTS:
                self.found.append(Moment(time, str(kind), row_event_text(event)))
            elif kind == "trigger":
                self.found.append(Moment(time, "trigger", f"trigger {event['name']}: {event['text']}"))
            elif kind == "lost":
                self.found.append(Moment(time, "lost", "the rows before this one were lost"))
            elif kind == "note":  # of an exported log, at its own time
                with suppress(ValidationError):  # of another program
                    note = LogNote.model_validate({key: value for key, value in event.items() if key != "kind"})
                    self.found.append(Moment(note.time, "note", f"note: {note.line}"))
            elif kind == "command":
                if text := command_text(event, self._header):
                    self.found.append(Moment(time, "command", f"command {text}"))

    def in_order(self) -> tuple[Moment, ...]:
        """All of them in the order of time."""
        return tuple(sorted(self.found, key=lambda moment: moment.time))
