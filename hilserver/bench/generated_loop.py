"""The generated loop of [Closed chains]: a mechanism of any size, for measurements."""

from __future__ import annotations

from math import cos, pi, sin
from typing import Any

from hilserver.mechanics.model import GROUND, Mechanism, read_mechanism

BAR, BAR_MASS = 0.1, 0.1
"""m, kg."""


def loop_table(joints: int) -> dict[str, Any]:
    """A loop of ``joints`` revolute joints as the table of a mechanism file.

    Equal bars of 0.1 m and 0.1 kg on a semicircle, suspended at both ends; the ground is the loop's last body. The
    semicircle is not their equilibrium under gravity, so they oscillate. Raises ValueError below 3 joints.
    """
    if joints < 3:
        raise ValueError(f"a loop needs at least 3 joints, not {joints}")
    bars = joints - 1
    radius = 0.5 * BAR / sin(0.5 * pi / bars)
    corner = [(-radius * cos(pi * i / bars), -radius * sin(pi * i / bars)) for i in range(joints)]
    moment = f"{BAR_MASS * BAR**2 / 12:.9g} kg*m^2"
    names = [GROUND, *(f"bar_{i}" for i in range(1, joints))]
    bodies = {}
    for i in range(1, joints):
        (x, z), (u, w) = corner[i - 1], corner[i]
        bodies[names[i]] = {
            "mass": f"{BAR_MASS:g} kg",
            "inertia": [moment] * 3,
            "centre": [f"{(x + u) / 2:.9g} m", "0 m", f"{(z + w) / 2:.9g} m"],
        }
    pins = {
        f"pin_{i + 1}": {
            "type": "revolute",
            "between": [names[i], names[(i + 1) % joints]],
            "point": [f"{x:.9g} m", "0 m", f"{z:.9g} m"],
            "axis": [0, 1, 0],
        }
        for i, (x, z) in enumerate(corner)
    }
    text = f"Generated loop of {joints} revolute joints: bars of 0.1 m on a semicircle, suspended at both ends"
    return {"description": text, "method": "recursive", "bodies": bodies, "joints": pins}


def generated_loop(joints: int) -> Mechanism:
    """The loop as a mechanism."""
    return read_mechanism(loop_table(joints))
