"""The names of the row's columns, as the log has them, with their units and meanings: derived from its records."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from hilserver.tick.records import Field, Struct
from hilserver.tick.row import (
    CYLINDER_PAST,
    ActuatorState,
    CylinderState,
    InputTrend,
    LearningState,
    PlayoutMemory,
    PortState,
    ReactionMemory,
    ReadingState,
    RowHeader,
    ValveState,
)


class Section(NamedTuple):
    """A section of the row: columns with the same fields for each name of a list, such as each channel of the rig."""

    owner: str
    """What the names belong to: a table of the rig file, or ``readings``, ``driven`` (outputs that are in use),
    ``reactions``, ``playouts``."""
    pattern: str
    """Name of a column; ``*`` stands for a name of the list, ``<k>`` for a number of ticks."""
    fields: Mapping[str, Field]
    whole: tuple[str, ...] = ()
    """The fields that hold whole numbers."""

    def columns(self, names: Iterable[str], ticks: Iterable[int] = (0,)) -> list[str]:
        """The names of its columns, in their order in the row."""
        patterns = [self.pattern.replace("<field>", field) for field in self.fields]
        return [p.replace("<k>", str(k)).replace("*", name) for name in names for p in patterns for k in ticks]

    def reference(self) -> Iterator[tuple[str, Field]]:
        """Each kind of its columns, with its meaning."""
        return ((self.pattern.replace("<field>", name), field) for name, field in self.fields.items())


def _records(owner: str, pattern: str, record: type[Struct]) -> Section:
    return Section(owner, pattern, record.fields(), record.whole())


def _one(owner: str, name: str, unit: str, description: str) -> Section:
    return Section(owner, "<field>.*", {name: Field(unit, description)})


def _past(fields: Mapping[str, Field], stored: Iterable[str]) -> dict[str, Field]:
    """The stored past values of some fields."""
    return {name: fields[name]._replace(description=f"{fields[name].description}, k ticks ago") for name in stored}


_AHEAD = {"ahead": Field("", "operator input in k ticks, where it is delayed")}
_PAST = {"command": Field("", "command of k ticks ago")}
_MEMORY = {"memory": Field("", "value k of its filter: state, disturbance, parameters, covariance, delayed values")}
_OF_CONTACT = ("stiffness", "slow_x", "slow_F", "slow_pressed", "free_F", "moved", "together", "taken_up")
_OF_MOTOR = {
    "p_A": ("p_A", Field("Pa", "pressure at A")),
    "p_B": ("p_B", Field("Pa", "pressure at B")),
    "x": ("turns", Field("", "revolutions since the start")),
    "v": ("speed", Field("1/s", "speed")),
    "F": ("work", Field("J", "work per revolution that is not measured: load, friction; 2 pi times the torque")),
    **{name: (name, Field("", "not used for a motor")) for name in _OF_CONTACT},
}
"""Columns of a motor that are called otherwise than those of a cylinder."""
_MOTOR = dict(_OF_MOTOR.get(name, (name, field)) for name, field in CylinderState.fields().items())
_PASTS = _past(CylinderState.fields(), CYLINDER_PAST)
_PASTS_OF_MOTOR = _past(_MOTOR, [_OF_MOTOR.get(name, (name,))[0] for name in CYLINDER_PAST])
SECTIONS = {
    "raw": _one("readings", "raw", "raw", "raw reading of the device"),
    "age": _one("readings", "age", "s", "age of that reading"),
    "errors": _one("devices", "errors", "", "failures of the device, counted since the start"),
    "confirmed": _one("driven", "confirmed", "raw", "raw value of an output as its device last confirmed it; or NaN"),
    "confirmed_age": _one(
        "driven",
        "confirmed_age",
        "s",
        "age of the command with which that value came, at the time of the latest command",
    ),
    "channel": _one("channels", "channel", "SI", "value of the channel"),
    "stale": _one("channels", "stale", "s", "age of its last valid sample"),
    "interval": _one("channels", "interval", "s", "time since the previous sample; 0: none since the last tick"),
    "change": _one("channels", "change", "SI/s", "rate of change of the channel"),
    "input": _one("inputs", "input", "", "operator input"),
    "trend": _records("inputs", "input_<field>.*", InputTrend),
    "reading": _records("channels", "channel_<field>.*", ReadingState),
    "limit": _one("limits", "limit", "", "1 if the limit is violated"),
    "valve": _records("valves", "valve.*.<field>", ValveState),
    "learning": _records("valves", "valve.*.<field>", LearningState),
    "actuator": _records("actuators", "actuator.*.<field>", ActuatorState),
    "actuator_memory": Section("actuators", "actuator.*.<field>_<k>", _MEMORY),
    "output": _one("outputs", "output", "raw", "raw value of an output other than a valve"),
    "output_off": _one("outputs", "output_off", "s", "time since its mode has ended; infinite before the first time"),
    "port": _records("ports", "<field>.*", PortState),
    "cylinder": _records("cylinders", "cylinder.*.<field>", CylinderState),
    "motor": Section("motors", "motor.*.<field>", _MOTOR),
    "valve_past": Section("valves", "valve.*.<field>_<k>", _PAST),
    "cylinder_past": Section("cylinders", "cylinder.*.<field>_<k>", _PASTS),
    "motor_past": Section("motors", "motor.*.<field>_<k>", _PASTS_OF_MOTOR),
    "input_ahead": Section("inputs", "input_<field>_<k>.*", _AHEAD),
    "reaction": _records("reactions", "reaction.*.<field>", ReactionMemory),
    "playout": _records("playouts", "playout.*.<field>", PlayoutMemory),
}
"""The sections of the row behind its header, in their order, by the fields of `hilserver.tick.plan.Layout`; to the
tick, motors are more cylinders. From them follow the names of the log's columns, their units and their reference."""


def column_reference() -> Iterator[tuple[str, Field]]:
    """Every kind of column of the log, in order: its name (``*`` stands for a name of the rig) and meaning."""
    yield from RowHeader.fields().items()
    for section in SECTIONS.values():
        yield from section.reference()


def unit_of_column(name: str) -> str:
    """The SI unit of a column by its name, empty if it has none or that of its channel or device."""
    found = next((unit for pattern, unit in _units_of_columns() if pattern.fullmatch(name)), "")
    return "" if found in ("raw", "SI", "SI/s") else found


@functools.cache
def _units_of_columns() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(_expression(pattern)), value.unit) for pattern, value in column_reference())


def is_whole(column: str) -> bool:
    """Whether a column of the row holds whole numbers, int64."""
    return _WHOLE.fullmatch(column) is not None


def matches(name: str, pattern: str) -> bool:
    """Whether a column is of a kind of `column_reference`."""
    return re.fullmatch(_expression(pattern), name) is not None


def _expression(pattern: str) -> str:
    return re.escape(pattern).replace(r"\*", ".+").replace("<k>", r"\d+")


_IN_SECTIONS = [s.pattern.replace("<field>", name) for s in SECTIONS.values() for name in s.whole]
_WHOLE = re.compile("|".join(map(_expression, [*RowHeader.whole(), *_IN_SECTIONS])))
