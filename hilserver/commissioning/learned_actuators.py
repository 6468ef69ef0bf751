"""What the bridge of an actuator has tracked, as values of the rig file, with standard deviations."""

from __future__ import annotations

from collections.abc import Mapping

from hilserver.displacement.servo import SPECIMEN
from hilserver.identify.estimate import Estimate
from hilserver.identify.findings import IdentifiedValue, joined
from hilserver.identify.report import toml_value
from hilserver.protocol.driven import LearnedValue
from hilserver.units import with_digits


def table_and_key(name: str) -> tuple[str, str]:
    """Table and key of a tracked value in the table of its actuator.

    >>> table_and_key("specimen_stiffness"), table_and_key("f90")
    (('specimen', 'stiffness'), ('servo', 'f90'))
    """
    key = name.removeprefix(SPECIMEN)
    return ("servo" if key == name else "specimen"), key


def shown(value: float, unit: str) -> str:
    """A stated value of an actuator, as messages have it."""
    return joined(f"{value:.5g}", unit)


def lines_of_actuator(actuator: str, values: Mapping[str, LearnedValue]) -> list[str]:
    """TOML with the values that are known, not at a bound, and differ from those of the rig file."""
    tables: dict[str, list[str]] = {}
    for name, found in values.items():
        table, key = table_and_key(name)
        if found.known and not found.at_bound and found.deviation is not None:
            value = IdentifiedValue(name, key, Estimate(found.value, found.deviation), found.configured, found.unit)
            if (text := toml_value(value)) != toml_value(value, found.configured):
                note = f"± {with_digits(found.deviation, found.unit, 2)}"
                tables.setdefault(table, []).append(f"{key} = {text}  # {note}")
    return [line for table, lines in tables.items() for line in (f"[actuators.{actuator}.{table}]", *lines)]
