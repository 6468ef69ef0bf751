"""The row's signals as commands name them: their columns and units, and quantities in these units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hilserver.circuit.pack import PackedCircuit
from hilserver.errors import did_you_mean
from hilserver.rig.rig import Rig
from hilserver.rig.triggers import signal_unit
from hilserver.service.refusals import invalid
from hilserver.units import CIRCUIT, Quantity, unit_of_value


def signal_column(rig: Rig, channels: Mapping[str, str], name: str, packed: PackedCircuit) -> tuple[int, str | None]:
    """Column and SI unit (None: any) of a channel, or of a value of the circuit. Raises ValueError if it is none.

    ``channels``: the row's columns by the channels' names.
    """
    circuit = [f"{CIRCUIT}{value}" for value in packed.names]
    if name in channels:
        return rig.layout.column(channels[name]), signal_unit(rig.settings, name, channels[name])
    if name in circuit:
        return len(rig.layout.names) + circuit.index(name), unit_of_value(name.removeprefix(CIRCUIT)) or None
    raise ValueError(f'"{name}" is not a channel.' + did_you_mean(name, [*channels, *circuit]))


def converted(key: str, text: str, convert: Any) -> Quantity:
    """A quantity from a text. Raises ConfigurationError that names the key."""
    try:
        found: Quantity = convert(text)
    except ValueError as error:
        raise invalid(key, str(error)) from None
    return found
