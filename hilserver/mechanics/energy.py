"""The energy of a mechanism's bodies: of their motion, and of their height under gravity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import hypot

import numpy as np

from hilserver.mechanics.cutting import tree_of
from hilserver.mechanics.geometry import extent
from hilserver.mechanics.model import Mechanism
from hilserver.mechanics.position import kinematics_of
from hilserver.mechanics.recursion import chain_energy
from hilserver.mechanics.tree import Tree


def energy_in(mechanism: Mechanism) -> Callable[[Mapping[str, float]], float]:
    """Kinetic and potential energy, J, of a state (by the names of `MechanismTables`); only differences have a meaning.

    In absolute coordinates it is the textbook's sum over the bodies, ½·m·v² + ½·J·ω² - m·g·r.
    """
    if mechanism.method == "recursive":
        tree = tree_of(mechanism)
        return partial(_of_tree, tree, [name for name, _ in tree.state_names()])
    return partial(_of_bodies, mechanism)


def _of_tree(tree: Tree, names: Sequence[str], states: Mapping[str, float]) -> float:
    y = np.array([states[name] for name in names])
    return float(chain_energy(kinematics_of(tree, y), y))


def _of_bodies(mechanism: Mechanism, states: Mapping[str, float]) -> float:
    g_x, g_y = mechanism.gravity
    energy = 0.0
    for name, body in mechanism.bodies.items():
        x, height, vx, vy, w = (states[f"{name}.{part}"] for part in ("x", "y", "vx", "vy", "w"))
        energy += 0.5 * body.mass * (vx * vx + vy * vy) + 0.5 * body.inertia[0] * w * w
        energy -= body.mass * (g_x * x + g_y * height)
    return energy


def reference_energy(mechanism: Mechanism, states: Mapping[str, float]) -> float:
    """What the energy of a mechanism is to be compared with, J: motion in this state, and weights times its size."""
    weightless = replace(mechanism, gravity=(0.0,) * len(mechanism.gravity))
    weight = sum(body.mass for body in mechanism.bodies.values()) * hypot(*mechanism.gravity)
    return energy_in(weightless)(states) + weight * extent(mechanism)
