"""Unknowns of a simulated rig as quantities of a study: what a real machine has, but neither file nor bridge knows.

They are those of ``hilserver fidelity --vary`` (`hilserver.fidelity.unknowns`), here by name. A rig as described has
none of them; a variant has those for which it is given a value, at all cylinders, valves or sensors alike.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

from hilserver.errors import did_you_mean, shown
from hilserver.fidelity.changes import DeviceTables
from hilserver.fidelity.draws import NamedDraw, UsualRange
from hilserver.fidelity.unknowns import UNKNOWNS, Unknown
from hilserver.rig.rig import Rig
from hilserver.studies.varied import VariedValue, choice_of
from hilserver.tolerances import Tolerance
from hilserver.toml import copied

UNKNOWN = "unknowns"
"""Beginning of the keys."""
ABSENT, PRESENT = "absent", "present"
"""What can be chosen from for an unknown as a whole."""


@dataclass(frozen=True)
class UnknownValue:
    """A value of an unknown, with its usual range, SI. ``name``: empty if the unknown has only one.

    ``value`` is NaN: the rig as described does not have it.
    """

    unknown: Unknown
    name: str
    usual: UsualRange
    value: float = nan

    @property
    def key(self) -> str:
        """Its key in a study."""
        key = key_of(self.unknown)
        return f"{key}.{self.name}" if self.name else key

    @property
    def unit(self) -> str:
        """SI."""
        return self.usual.unit

    @property
    def tolerance(self) -> Tolerance:
        """The usual range: all values equally probable."""
        return Tolerance(self.usual.middle, self.usual.low, self.usual.high, self.unit)


def key_of(unknown: Unknown) -> str:
    """The key of an unknown as a whole."""
    return f"{UNKNOWN}.{unknown.name.replace(' ', '_')}"


def unknown_values(rig: Rig, device: str) -> dict[str, UnknownValue]:
    """The values of all unknowns for which the rig has what they need, by key."""
    found = dict[str, UnknownValue]()
    for unknown in UNKNOWNS:
        draw = NamedDraw()
        unknown.change(_tables(copied(rig.sources), rig, device), draw)
        for name, usual in draw.ranges.items():
            value = UnknownValue(unknown, name, usual)
            found[value.key] = value
    return found


def usual_values(known: Mapping[str, object], key: str) -> list[UnknownValue]:
    """The values of an unknown, or of all with the key ``unknowns``. Raises ValueError if it is none."""
    values = [each for each in known.values() if isinstance(each, UnknownValue)]
    found = [each for each in values if key in (UNKNOWN, key_of(each.unknown), each.key)]
    if not found:
        keys = dict.fromkeys((UNKNOWN, *(key_of(each.unknown) for each in values), *(each.key for each in values)))
        raise ValueError(f"only unknowns have a usual range, and {key} is not one.{did_you_mean(key, keys)}")
    return found


def choice_of_unknown(known: Mapping[str, object], key: str, entries: Sequence[Any]) -> VariedValue:
    """Whether a variant has an unknown at all. Raises ValueError."""
    wholes = {key_of(each.unknown) for each in known.values() if isinstance(each, UnknownValue)}
    if key not in wholes:
        raise ValueError(f"{key} is not an unknown of this rig.{did_you_mean(key, wholes)}")
    if sorted(map(str, entries)) != [ABSENT, PRESENT]:
        raise ValueError(f'{shown(entries)} is not a choice for an unknown: write ["{ABSENT}", "{PRESENT}"]')
    return choice_of(key, entries, ABSENT)


def with_unknowns(
    sources: Mapping[str, Any],
    rig: Rig,
    device: str,
    values: Sequence[tuple[UnknownValue, float]],
    chosen: Mapping[str, str],
) -> Mapping[str, Any]:
    """The sources of a rig whose device has unknowns with these values, SI.

    ``chosen``: by the keys of unknowns, whether they are absent or present; one that is present, and has no value, has
    the middle of its usual range.
    """
    wanted = {key_of(each.unknown) for each, _ in values} | {key for key, state in chosen.items() if state == PRESENT}
    wanted -= {key for key, state in chosen.items() if state == ABSENT}
    if not wanted:
        return sources
    sources = copied(sources)
    for unknown in _in_order(wanted):
        own = {each.name: x for each, x in values if each.unknown == unknown}
        unknown.change(_tables(sources, rig, device), NamedDraw(own))
    return sources


def _in_order(keys: Collection[str]) -> list[Unknown]:
    """One may build on another: the order is always the same."""
    return [unknown for unknown in UNKNOWNS if key_of(unknown) in keys]


def _tables(sources: Mapping[str, Any], rig: Rig, device: str) -> DeviceTables:
    return DeviceTables.of(sources, device, float(rig.plan.loop[0].dt))
