"""The header of a run's log, and commands as events in the tick that took them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from hilserver.circuit.pack import PackedCircuit
from hilserver.numerics.arrays import Floats
from hilserver.record.format import Event, LogHeader, circuit_event
from hilserver.record.machine import machine
from hilserver.tick.codes import CommandKind
from hilserver.tick.columns import is_whole, unit_of_column
from hilserver.tick.row import CommandRecord, as_whole
from hilserver.units import unit_of_value

if TYPE_CHECKING:  # the recorder's process starts without loading settings
    from hilserver.rig.rig import Rig

COMMAND_NAMES: dict[int, str] = {
    **{kind: kind.name.lower() for kind in CommandKind if kind not in (CommandKind.NOTHING, CommandKind.SET_INPUT)},
    CommandKind.SWAP: "switch",
    CommandKind.TRIP: "trip",
    CommandKind.CODE: "use compiled circuit",
    CommandKind.REACT_WHEN: "react (condition)",
    CommandKind.REACT_THEN: "react",
    CommandKind.PLAY_TARGET: "play (target)",
    CommandKind.PLAY_DRIVE: "play (drive)",
    CommandKind.PLAY_END: "end_playout",
}
"""Commands that are listed as events of a run; new values of inputs are in a column."""


def run_header(rig: Rig, program: str, kind: str) -> LogHeader:
    """Header of a run's log. ``program``: fingerprint of the compiled program; ``kind``: "real time" or "lockstep"."""
    return LogHeader(
        software=f"hilserver {version('hilserver')}",
        rig=rig.settings.name,
        started=datetime.now(UTC).isoformat(timespec="milliseconds"),
        period_s=1.0 / rig.settings.loop.rate,
        columns=rig.layout.names,
        whole=tuple(name for name in rig.layout.names if is_whole(name)),
        circuit_names=rig.packed.names,
        configuration={"file": str(rig.file), **rig.sources},
        packed=packed_record(rig.packed, rig.circuit.source),
        units=units_of(rig),
        compression=rig.settings.recording.compression,
        signals=() if "*" in rig.settings.recording.signals else rig.settings.recording.signals,
        extra={
            "program": program,
            "kind": kind,
            "machine": machine(),
            "circuit_space": rig.layout.circuit_space,
            **({"speed": rig.speed} if rig.speed != 1.0 else {}),
        },
    )


def units_of(rig: Rig) -> dict[str, str]:
    """SI units of the log's columns, where known: channels, flows, times, values of the circuit."""
    units = {name: unit_of_column(name) for name in rig.layout.names}
    for name, settings in rig.settings.channels.items():
        units |= {f"channel.{name}": settings.unit, f"change.{name}": f"{settings.unit}/s" if settings.unit else ""}
        units |= {f"channel_difference.{name}": settings.unit}
    units |= {name: unit_of_value(name) for name in rig.packed.names}
    return {name: unit for name, unit in units.items() if unit}


def rows_per_file(rig: Rig) -> int | None:
    """Maximum number of rows per file, from ``recording.max_duration``."""
    duration = rig.settings.recording.max_duration
    return None if duration is None else max(round(duration * rig.settings.loop.rate), 1)


def packed_record(packed: PackedCircuit, source: Mapping[str, Any], carried: Any = None) -> dict[str, Any]:
    """A packed circuit as stored in header and events: arrays, names, source, and the carry-over map of a switch."""
    record = {
        "index": packed.index,
        "value": packed.value,
        "values": list(packed.values),
        "recorded": list(packed.recorded),
        "kinds": list(packed.kinds),
        "source": dict(source),
    }
    return record if carried is None else {**record, "carried": carried}


def unpacked_record(record: Mapping[str, Any]) -> PackedCircuit:
    """The inverse of `packed_record`."""
    return PackedCircuit(
        np.asarray(record["index"], dtype=np.uint64),
        np.asarray(record["value"], dtype=np.float64),
        tuple(record["values"]),
        tuple(record["recorded"]),
        tuple(record["kinds"]),
    )


def command_event(record: Floats, about: Mapping[str, Any] | None = None) -> Event:
    """The event of a command: its mailbox record (float64[8]), bit for bit; ``about``: further keys."""
    return {"kind": "command", "record": np.array(record, dtype=np.float64), **(about or {})}


def recorded_command(event: Event, header: LogHeader) -> Floats:
    """The mailbox record of the event of a command. In logs of format 1, whole numbers in it are float64."""
    record: Floats = np.array(event["record"], dtype=np.float64)
    if header.format == 1:
        places = [CommandRecord.names().index(name) for name in CommandRecord.whole()]
        as_whole(record)[places] = record[places]
    return record


def swap_events(record: Floats, packed: Mapping[str, Any]) -> list[Event]:
    """The events of a switched circuit: the command, and the circuit from this row on (see packed_record)."""
    return [command_event(record), circuit_event((*packed["values"], *packed["recorded"]), packed)]
