"""References between settings: a key that names a channel, a device, a port, a valve or an input of the rig.

A field declares what its text names (``PortName``, ``PressureChannel``, …). By these declarations :func:`unresolved`
finds the references of a table, also of one whose other values are not valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, StringConstraints

from hilserver.errors import Problem, did_you_mean, dotted, shown
from hilserver.units import usual_unit

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,39}$")]
"""Names become columns of the log and parts of commands: letters, digits, _ and -, a letter first."""
Text = Annotated[str, StringConstraints(min_length=1)]


@dataclass(frozen=True)
class Names:
    """Annotation of a text that names an entry of a table of the rig file.

    ``unit``: the SI unit that a channel must have, "" for none; None: any. ``measured``: no channel with a fixed value.
    """

    table: str
    unit: str | None = None
    measured: bool = False


ChannelName = Annotated[str, Names("channels")]
PressureChannel = Annotated[str, Names("channels", "Pa")]
FlowChannel = Annotated[str, Names("channels", "m^3/s")]
PositionChannel = Annotated[str, Names("channels", "m")]
ForceSensor = Annotated[str, Names("channels", "N", measured=True)]
PositionSensor = Annotated[str, Names("channels", "m", measured=True)]
SpeedChannel = Annotated[str, Names("channels", "1/s")]
PlainChannel = Annotated[str, Names("channels", "")]
SwitchChannel = Annotated[str, Names("channels", "", measured=True)]
DeviceName = Annotated[str, Names("devices")]
PortName = Annotated[str, Names("ports")]
ValveName = Annotated[Name, Names("valves")]
InputName = Annotated[str, Names("inputs")]

NOUNS = {
    "channels": "a channel",
    "devices": "a device",
    "ports": "a port",
    "valves": "a valve",
    "inputs": "an input of the rig",
}


@dataclass(frozen=True)
class Reference:
    """A reference as written in a file: what it must name, the name, the key."""

    to: Names
    name: str
    key: str


@dataclass(frozen=True)
class ChannelKind:
    """What a reference may require of a channel: its SI unit, and whether it is measured or has a fixed value."""

    unit: str
    measured: bool


def references(annotation: Any, value: object, location: tuple[str | int, ...] = ()) -> Iterator[Reference]:
    """The references in a value that is to be of this type, but need not be valid."""
    if get_origin(annotation) is Annotated:
        annotation, *marks = get_args(annotation)
        yield from _marked(marks, value, location)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        given = value if isinstance(value, Mapping) else {}
        for name, field in annotation.model_fields.items():
            if name in given:
                yield from _marked(field.metadata, given[name], (*location, name))
                yield from references(field.annotation, given[name], (*location, name))
    elif get_origin(annotation) is dict:
        of_key, of_value = get_args(annotation)
        for name, entry in value.items() if isinstance(value, Mapping) else ():
            yield from references(of_key, name, (*location, name))
            yield from references(of_value, entry, (*location, name))
    elif get_origin(annotation) is not tuple:  # a union: of its types only one fits
        for part in get_args(annotation):
            yield from references(part, value, location)


def _marked(marks: list[Any], value: object, location: tuple[str | int, ...]) -> Iterator[Reference]:
    if isinstance(value, str):
        yield from (Reference(mark, value, dotted(location)) for mark in marks if isinstance(mark, Names))


def unresolved(
    model: type[BaseModel],
    source: object,
    tables: Mapping[str, Any],
    file: str,
    channels: Mapping[str, ChannelKind],
) -> Iterator[Problem]:
    """The references of a table that name nothing, or a channel of another kind than is required.

    ``model``: of the table ``source``. ``tables``: of the rig file. ``channels``: the rig's channels that are valid; of
    the others only the names are checked.
    """
    for reference in references(model, source):
        to, name = reference.to, reference.name
        known = tables.get(to.table)
        known = known if isinstance(known, Mapping) else {}
        text = ""
        if name not in known:
            text = f"{shown(name)} is not {NOUNS[to.table]}." + did_you_mean(name, known)
        elif to.table == "channels" and name in channels:
            text = _unfit(to, name, channels[name])
        if text:
            yield Problem(text, reference.key, file)


def _unfit(to: Names, name: str, channel: ChannelKind) -> str:
    """Why a channel is not of the required kind; empty if it is."""
    if to.unit is not None and channel.unit != to.unit:
        return f'channel "{name}" has {_unit(channel.unit)}; a channel with {_unit(to.unit)} is required here.'
    if to.measured and not channel.measured:
        return f'channel "{name}" has a fixed value; a measured channel is required here.'
    return ""


def _unit(unit: str) -> str:
    if unit == "1/s":  # a speed
        return "the unit rpm"
    return f"the unit {usual_unit(unit)}" if unit else "no unit"


def subtables(source: object, *keys: str) -> dict[str, Mapping[str, Any]]:
    """The tables in the table that these keys lead to, of a source that need not be valid."""
    for key in keys:
        source = source.get(key) if isinstance(source, Mapping) else None
    tables = source.items() if isinstance(source, Mapping) else ()
    return {name: table for name, table in tables if isinstance(table, Mapping)}
