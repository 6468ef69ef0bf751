"""Mechanism -> the tables and states that a circuit packs."""

from __future__ import annotations

from dataclasses import dataclass

from hilserver.mechanics import columns as c
from hilserver.mechanics.assembly import Assembly, actuator_lines, block, needed, start
from hilserver.mechanics.chain import chain_scratch
from hilserver.mechanics.cutting import tree_of
from hilserver.mechanics.initial import start_of
from hilserver.mechanics.kinematics import actuator_motion, measure_rows
from hilserver.mechanics.model import Mechanism, Rotary
from hilserver.mechanics.planar import LINE_ENTRIES, PAIR_ENTRIES, planar_work
from hilserver.mechanics.position import kinematics_of

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
    """The tables of a mechanism at its start. Raises ConfigurationError if it can't start so.

    ``prefix``: where the mechanism stands in ``file``, put before every key.
    """
    if m.method == "recursive":
        return _recursive(m, file, prefix)
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


def _recursive(m: Mechanism, file: str, prefix: str) -> MechanismTables:
    """The same in joint coordinates."""
    tree = tree_of(m, file=file, prefix=prefix)
    y = start_of(tree, file, prefix)
    actuators = list(m.actuators)
    in_chain = sorted(actuators, key=lambda name: isinstance(m.actuators[name], Rotary))
    chain = kinematics_of(tree, y)
    measure_rows(chain, chain.n_closures, chain.n_rows)
    motions = [actuator_motion(chain, in_chain.index(name), y) for name in actuators]
    return MechanismTables(
        c.RECURSIVE,
        tuple((name, unit, float(x)) for (name, unit), x in zip(tree.state_names(), y, strict=True)),
        tuple((float(x), float(v)) for x, v in motions),
        (),
        (*(in_chain.index(name) for name in actuators), *(int(entry) for entry in tree.entries)),
        tuple(float(number) for number in tree.numbers),
        1 + chain_scratch(chain.n, chain.n_coordinates, chain.n_rows) + (1 + len(actuators)) * (chain.n - 1),
    )
