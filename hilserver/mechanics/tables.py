"""Mechanism -> the tables and states that a circuit packs."""

from __future__ import annotations

from dataclasses import dataclass

from hilserver.errors import ConfigurationError, Problem
from hilserver.mechanics import columns as c
from hilserver.mechanics.assembly import Assembly, actuator_lines, block, needed, start
from hilserver.mechanics.model import Mechanism
from hilserver.mechanics.planar import LINE_ENTRIES, PAIR_ENTRIES, planar_work

_COORDINATES = (("x", "m"), ("y", "m"), ("angle", "rad"), ("vx", "m/s"), ("vy", "m/s"), ("w", "rad/s"))


@dataclass(frozen=True)
class MechanismTables:
    """A mechanism ready to be packed.

    ``states``: name, unit and initial value (SI); ``motions``: position and speed of each actuator at the start;
    ``own``: the entries of its block between the common ones and the actuators' table; ``entries``: those behind it;
    ``values``: its numbers; ``work``: length of its scratch space.
    """

    method: int
    states: tuple[tuple[str, str, float], ...]
    motions: tuple[tuple[float, float], ...]
    own: tuple[int, ...]
    entries: tuple[int, ...]
    values: tuple[float, ...]
    work: int


def tables(m: Mechanism, file: str = "", prefix: str = "") -> MechanismTables:
    """The tables of a mechanism at its start. Raises ConfigurationError where it can't start so.

    ``prefix``: where the mechanism stands in ``file``, put before every key.
    """
    if m.method == "recursive":
        text = 'in a circuit a mechanism is solved with method = "absolute" only, so far.'
        raise ConfigurationError([Problem(text, prefix, file)])
    initial = start(m, file, prefix)
    lines = needed(m, initial, file, prefix)
    every = [*lines, *actuator_lines(m)]
    entries, values = block(m, every)
    places, speeds, _ = Assembly(m, actuator_lines(m)).of(initial)
    names = [(f"{body}.{name}", unit) for body in m.bodies for name, unit in _COORDINATES]
    return MechanismTables(
        c.ABSOLUTE,
        tuple((name, unit, float(x)) for (name, unit), x in zip(names, initial, strict=True)),
        tuple((float(x), float(v)) for x, v in zip(places, speeds, strict=True)),
        (len(m.bodies), len(lines), (len(entries) - LINE_ENTRIES * len(every)) // PAIR_ENTRIES),
        tuple(entries),
        tuple(values),
        planar_work(len(m.bodies), len(lines), len(m.actuators)),
    )
