"""The specimen at its node: mechanisms, friction, stiff couplings, errors of its mass. Judged by SciPy.

The arm turns about the origin; a ram at (0, -1 m) pushes a pin on it, and follows the circuit. The effective inertia at
the ram changes with the angle by several times.
"""

from __future__ import annotations

from math import cos, hypot, sin
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from actuator_rigs import Motion, Oscillator, Specimen, Stand, Table, add_actuator, moved, part, share, solved

from hilserver.circuit.library import standard_library
from hilserver.compiler import compiled_program
from hilserver.margins.actuators import ActuatorMargin, actuator_margins, refusals, warnings
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.tick.codes import Mode

LEVER = 0.08
"""m, from the origin to the pin."""
HELD = 2e4, 400.0
"""Virtual spring and damper at the ram, N/m and N s/m."""


def margins(rig: Rig) -> ActuatorMargin:
    return actuator_margins(rig, compiled_program(rig.library))[0]


def arm(inertia: float, turned: float, force: float, specimen: Specimen, strategy: str, two: bool = False) -> Rig:
    """A rig with an arm of ``inertia`` kg m², first ``turned`` by this angle, under a sine of 1 Hz from 3 s on.

    ``two``: two rams at the same pins, each with such a specimen.
    """
    x, y = LEVER * cos(turned), LEVER * sin(turned)
    ram: Table = {
        "between": ["ground", "arm"],
        "pins": [["0 m", "-1 m"], [f"{x} m", f"{y} m"]],
        "retracted": f"{hypot(x, y + 1.0) - 0.3} m",
    }
    mechanism = {
        "description": "an arm",
        "bodies": {"arm": {"mass": "1 kg", "inertia": f"{inertia} kg*m^2", "centre": ["0 m", "0 m"]}},
        "joints": {"pivot": {"type": "revolute", "between": ["ground", "arm"], "point": ["0 m", "0 m"]}},
        "actuators": {"ram": ram, **({"other": ram} if two else {})},
    }
    nodes = {"ram": "rig.table", **({"other": "rig.two"} if two else {})}
    ends = {"rod": "rig.table", "base": "earth"}
    components = {
        "earth": part("velocity_source", {"rod": "earth"}),
        "spring": part("spring", ends, stiffness=f"{HELD[0]} N/m", relaxed="0.3 m"),
        "damper": part("damper", ends, damping=f"{HELD[1]} N*s/m"),
        "sine": {"type": "sine_signal", "signal": "s", "frequency": "1 Hz", "start": "3 s"},
        "force": part("force_source", {"rod": "rig.table"}, command="s", force=f"{force} N"),
    }
    circuit = {
        "mechanisms": {"arm": {"definition": mechanism, "nodes": nodes}},
        "solver": {"integrator": "rosenbrock", "substeps": 4},
        "components": components,
    }
    offset = {"rig": {"actuators": {"table": {"offset": "-300 mm"}}}}
    sources = Stand(circuit, 1000.0, specimen, noise=(0.0, 0.0), strategy=strategy, changes=offset).sources()
    if two:
        add_actuator(sources)
    return assemble(sources, Path("stand.toml"), standard_library())


def right_ram(inertia: float, turned: float, force: float, specimen: Specimen, count: float, time: Floats) -> Floats:
    """Displacement of the ram with ``count`` specimens, by Lagrange's equation."""
    first = hypot(LEVER * cos(turned), LEVER * sin(turned) + 1.0)

    def ram(angle: float) -> tuple[float, float]:
        """Displacement and lever arm: its derivative by the angle."""
        x, y = LEVER * cos(turned + angle), LEVER * sin(turned + angle) + 1.0
        return hypot(x, y) - first, x / hypot(x, y)

    def rate(t: float, y: Any) -> list[float]:
        x, lever = ram(y[0])
        bent = (ram(y[0] + 1e-6)[1] - lever) / 1e-6
        push = force * np.sin(2.0 * np.pi * (t - 3.0)) if t > 3.0 else 0.0
        k, c = HELD[0] + count * specimen.stiffness, HELD[1] + count * specimen.damping
        pushed = push - k * x - c * lever * y[1] - count * specimen.mass * bent * y[1] ** 2
        return [y[1], float(pushed * lever / (inertia + count * specimen.mass * lever**2))]

    angles = solved(rate, [0.0, 0.0], time)[:, 0]
    return np.array([ram(angle)[0] for angle in angles])


@pytest.mark.parametrize(
    ("inertia", "turned", "force"), [(0.1, 0.0, 400.0), (0.1, -1.2, 700.0), (0.1, 1.1, 700.0), (0.3, -1.1, 900.0)]
)
@pytest.mark.parametrize("two", [False, True])
def test_the_inertia_at_a_mechanism_may_change(inertia: float, turned: float, force: float, two: bool) -> None:
    """From 102 to 28 kg in the second row, with specimens of 30 kg; two of them are coupled rigidly."""
    specimen = Specimen(30.0, 500.0, 2e4)
    rig = arm(inertia, turned, force, specimen, "prediction", two)
    assert list(refusals(actuator_margins(rig, compiled_program(rig.library)))) == []
    motion = moved(rig, 7.0)
    after, right = motion.time > 3.0, right_ram(inertia, turned, force, specimen, 1.0 + two, motion.time)
    assert share(motion.real[after], right[after]) < 2e-3


@pytest.mark.parametrize(("inertia", "swings"), [(0.1, True), (6.0, False)])
def test_the_check_sees_nodes_at_mechanisms(inertia: float, swings: bool) -> None:
    """Their velocity is no state of the circuit. 16 and 940 kg at the ram, with the measured force."""
    rig = arm(inertia, 0.0, 10.0, Specimen(30.0, 500.0, 2e5), "adaptive")
    assert bool(list(refusals([margins(rig)]))) == swings
    motion = moved(rig, 6.0)
    left = bool((motion.column("mode").view(np.int64) == Mode.FAULT).any())
    assert (left or bool(np.ptp(motion.real[motion.time > 4.0]) > 5e-3)) == swings


def rubbing(mass: float, static: float, coulomb: float, force: float) -> Motion:
    """A mass on a spring with Stribeck friction under a sine of 3 Hz, with a specimen of 30 kg."""
    base = {"rod": "rig.table", "base": "earth"}
    components = {
        "mass": part("load_mass", {"rod": "rig.table"}, mass=f"{mass} kg", gravity="0 m/s^2"),
        "earth": part("velocity_source", {"rod": "earth"}),
        "spring": part("elastic_coupling", base, stiffness="2e5 N/m", damping="3000 N*s/m"),
        "rub": part("friction", {"rod": "rig.table"}, static=f"{static} N", coulomb=f"{coulomb} N", viscous="0 N*s/m"),
        "sine": {"type": "sine_signal", "signal": "push", "frequency": "3 Hz", "start": "2 s"},
        "force": part("force_source", {"rod": "rig.table"}, command="push", force=f"{force} N"),
    }
    circuit = {"solver": {"integrator": "rosenbrock", "substeps": 6}, "components": components}
    rig = Stand(circuit, 1000.0, Specimen(30.0, 500.0, 2e5), noise=(0.0, 0.0)).rig()
    assert list(refusals([margins(rig)])) == []
    return moved(rig, 4.0)


@pytest.mark.parametrize(
    ("mass", "static", "coulomb"),
    [(300.0, 300.0, 300.0), (300.0, 300.0, 210.0), (1000.0, 1000.0, 700.0), (10.0, 900.0, 900.0)],
)
def test_friction_at_the_node_hides_neither_its_mobility_nor_its_stability(
    mass: float, static: float, coulomb: float
) -> None:
    """The falling part of a Stribeck curve excites a motion at 10 mm/s, with or without a bridge."""
    motion = rubbing(mass, static, coulomb, 3000.0)

    def rate(t: float, y: Any) -> list[float]:
        rub = np.tanh(y[1] / 0.5e-3) * (coulomb + (static - coulomb) * np.exp(-((y[1] / 8e-3) ** 2)))
        push = 3000.0 * np.sin(6.0 * np.pi * (t - 2.0)) if t > 2.0 else 0.0
        return [y[1], float(push - 4e5 * y[0] - 3500.0 * y[1] - rub) / (mass + 30.0)]

    after = motion.time > 2.0
    assert share(motion.virtual[after], solved(rate, [0.0, 0.0], motion.time)[after, 0]) < 5e-3


@pytest.mark.parametrize(("stiffness", "swings"), [(1e8, False), (1e6, True)])
def test_a_small_node_at_a_heavy_mass_is_judged_by_its_loop(stiffness: float, swings: bool) -> None:
    """15 kg, coupled to 300 kg; with the measured force and a specimen of 30 kg."""
    components = {
        "small": part("load_mass", {"rod": "rig.table"}, mass="15 kg", gravity="0 m/s^2"),
        "heavy": part("load_mass", {"rod": "heavy"}, mass="300 kg", gravity="0 m/s^2"),
        "earth": part("velocity_source", {"rod": "earth"}),
        "coupling": part(
            "elastic_coupling",
            {"rod": "rig.table", "base": "heavy"},
            stiffness=f"{stiffness} N/m",
            damping=f"{1e-4 * stiffness + 900.0} N*s/m",
        ),
        "spring": part(
            "elastic_coupling", {"rod": "heavy", "base": "earth"}, stiffness="5e5 N/m", damping="5000 N*s/m"
        ),
        "step": {"type": "step_signal", "signal": "push", "start": "2 s", "after": 1.0},
        "force": part("force_source", {"rod": "heavy"}, command="push", force="1000 N"),
    }
    circuit = {"solver": {"integrator": "rosenbrock", "substeps": 8}, "components": components}
    rig = Stand(circuit, 1000.0, Specimen(30.0, 500.0, 2e5), noise=(0.0, 0.0), strategy="adaptive").rig()
    assert bool(list(refusals([margins(rig)]))) == swings
    motion = moved(rig, 5.0)
    left = bool((motion.column("mode").view(np.int64) == Mode.FAULT).any())
    assert (left or bool(np.ptp(motion.real[motion.time > 4.0]) > 1e-4)) == swings


@pytest.mark.parametrize(("mass", "warned"), [(300.0, False), (15.0, True)])
def test_a_wrong_mass_that_would_make_the_loop_swing_is_warned_of(mass: float, warned: bool) -> None:
    """The specimen is a quarter heavier than stated."""
    virtual = Oscillator(mass, 3.0, 0.1, 300.0, Specimen(30.0, 500.0, 1.2e5))
    rig = Stand(virtual.circuit(), 1000.0, virtual.specimen, Specimen(24.0, 500.0, 1.2e5)).rig()
    assert any("specimen.mass: if the specimen is" in text for text in warnings([margins(rig)])) == warned
    motion = moved(rig, 6.0)
    after = motion.time > 4.0
    assert bool(share(motion.real[after], virtual.right(motion.time)[after]) > 0.1) == warned
