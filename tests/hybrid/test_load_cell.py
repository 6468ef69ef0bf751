"""A load cell between piston and specimen: the inertia of what moves in front of it is not in its reading."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from actuator_rigs import Oscillator, Servo, Specimen, Stand, moved, part, share
from scipy.integrate import solve_ivp

from hilserver.displacement.actuator import Actuator
from hilserver.displacement.specimen import Specimen as Real

PISTON = 20.0
CELL = 1.2e8, 400.0
"""Stiffness, N/m, and damping, N s/m, of the load cell with what it is fixed to: 500 Hz between the two masses."""
VIRTUAL = Oscillator(300.0, 8.0, 0.1, 300.0, Specimen(30.0, 500.0, 1.8e5))


def stand(**servo: Any) -> Stand:
    """A rig whose piston moves the specimen through an elastic load cell; ``servo``: what the bridge is told of it."""
    drive = Servo().drive()
    drive["components"]["actuator"]["ports"] = {"rod": "piston"}
    lag = {"time_constant": "0.02 ms"}
    drive["components"] |= {
        "piston_mass": part("load_mass", {"rod": "piston"}, mass=f"{PISTON} kg", gravity="0 m/s^2"),
        "cell": part(
            "elastic_coupling",
            {"rod": "piston", "base": "table"},
            stiffness=f"{CELL[0]} N/m",
            damping=f"{CELL[1]} N*s/m",
        ),
        "before": part("position_sensor", {"rod": "piston"}, signal="before", **lag),
        "behind": part("position_sensor", {"rod": "table"}, signal="behind", **lag),
        "reading": {
            "type": "sum",
            "a": "before",
            "b": "behind",
            "signal": "reading",
            "weight_a": CELL[0],
            "weight_b": -CELL[0],
        },
    }
    drive["solver"] = {"integrator": "rosenbrock", "substeps": 10}
    changes = {"rig": {"actuators": {"table": {"servo": servo}}}}
    return Stand(VIRTUAL.circuit(), 1000.0, VIRTUAL.specimen, drive=drive, of=("table.x", "reading"), changes=changes)


def off(rig: Stand) -> float:
    """Error of the specimen's displacement."""
    motion = moved(rig.rig(), 6.0)
    after = motion.time > 4.0
    return share(motion.real[after], VIRTUAL.right(motion.time)[after])


def test_the_mass_in_front_of_the_load_cell_is_known() -> None:
    """The structure carries what is behind the load cell only."""
    assert off(stand(moving_mass=f"{PISTON} kg")) < 0.01
    assert off(stand()) > 0.02


@pytest.mark.parametrize("load", [0.0, 400.0])
def test_the_model_is_that_of_the_masses(load: float) -> None:
    """Against the oil's force on both masses, without that which accelerates the mass in front of the load cell."""
    real = VIRTUAL.specimen
    specimen = Real(real.mass, real.damping, real.stiffness)
    model = Actuator(2.1e13, 4.2e6, 3.3, 430.0, 1e5, 1.0, specimen, moving_mass=PISTON)
    whole = specimen.mass + PISTON
    both = replace(model, specimen=replace(specimen, mass=whole), moving_mass=0.0)
    time = np.linspace(0.0, 0.5, 200)

    def inputs(t: Any) -> Any:
        return np.stack([1e-3 * np.sin(60.0 * t), load + 0.0 * t])

    def moves(model: Actuator, force: float) -> Any:
        A, B = model.motion()
        start = np.array([0.0, 0.0, force, 0.0, 0.0])
        found = solve_ivp(lambda t, y: A @ y + B @ inputs(t), (0.0, 0.5), start, "Radau", time, rtol=1e-9, atol=1e-12)
        return found.y, (A @ found.y + B @ inputs(time))[1]

    right, acceleration = moves(both, 0.0)
    ours, same = moves(model, load * PISTON / whole)  # the load acts from the beginning: the load cell feels its share
    assert ours[0] == pytest.approx(right[0], abs=1e-6 * np.abs(right[0]).max())
    assert same == pytest.approx(acceleration, abs=1e-5 * np.abs(acceleration).max())
    assert ours[2] == pytest.approx(right[2] - PISTON * acceleration, abs=1e-5 * np.abs(right[2]).max())
