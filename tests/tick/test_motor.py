"""A hydraulic motor as the machine: the bridge's model of it, its speed sensor, and a conveyor against the reference.

The judge is the simulated machine: the component ``hydraulic_motor`` with inertia and load, which the bridge's model
does not share.
"""

from __future__ import annotations

import copy
from math import pi
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilserver.circuit.library import standard_library
from hilserver.compiler import standard_program
from hilserver.errors import ConfigurationError
from hilserver.fidelity.cycle_run import run_cycle_on
from hilserver.fidelity.results import SegmentResult
from hilserver.fidelity.strategies import compare
from hilserver.margins.bridge_delay import bridge_delay
from hilserver.record.run import units_of
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.rig.simulated import plant_circuit
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.codes import Unseen
from hilserver.virtual_commissioning.stand_in import stand_in

CONVEYOR = Path(__file__).parents[2] / "config/rigs/conveyor.toml"
Sources = dict[str, Any]


def conveyor(**changes: dict[str, Any]) -> Rig:
    """The ready rig with changes of its ``motor``, ``simulation``, the valves of the drive (``valve``), ``bridge``."""
    sources: Sources = copy.deepcopy(dict(load_rig(CONVEYOR).sources))
    motor, device = sources["rig"]["motors"]["drive"], sources["devices"]["rig"]
    motor |= changes.get("motor", {})
    for key in [key for key, value in motor.items() if value is None]:
        del motor[key]
    for name in ("valve_A", "valve_B"):
        device["drive"]["components"][name] |= changes.get("valve", {})
    sources["rig"]["simulation"] = changes.get("simulation", {})
    for valve in sources["rig"]["valves"].values():
        valve["bridge"] |= changes.get("bridge", {})
    return assemble(sources, CONVEYOR, standard_library())


def results(rig: Rig, *strategies: str) -> dict[str, SegmentResult]:
    """Each strategy over the work cycle."""
    found = compare(rig, strategies, chosen_by_user=True)
    assert not found.tripped
    return {v.name: v.cycle for v in found.variants if v.cycle is not None}


def nrmse(result: SegmentResult, quantity: str) -> float:
    return result.deviations[quantity].nrmse


@pytest.mark.slow
def test_the_shaft_turns_as_if_the_circuit_were_installed() -> None:
    """Speed within 0.1 %, pressures within 1 %; feedback is closer than the level below, whose spool has no delay."""
    found = results(conveyor(), "inverse_static", "second_order", "feedback")
    assert nrmse(found["feedback"], "speed shaft") < 1e-3
    assert max(nrmse(found["feedback"], f"flow {port}") for port in "AB") < 1e-3
    assert max(nrmse(found["feedback"], f"pressure {port}") for port in "AB") < 0.01
    speeds = [nrmse(found[name], "speed shaft") for name in ("inverse_static", "second_order", "feedback")]
    assert speeds == sorted(speeds, reverse=True)
    assert found["feedback"].noise("A", 1e-3) < 1e-3


@pytest.mark.slow
def test_what_a_motor_draws_from_a_void_is_not_taken_for_a_flow() -> None:
    """A drum ten times as heavy: braked, the motor draws from an empty port for a fifth of the cycle.

    By its speed, more oil would have entered than the valve has passed, and `feedback` made up for the difference: it
    was 4.1 % off, with 2.5 % of noise. (`second_order`: 0.07 %.)
    """
    sources: Sources = copy.deepcopy(dict(load_rig(CONVEYOR).sources))
    sources["devices"]["rig"]["machine"]["components"]["drum"]["inertia"] = "0.5 kg*m^2"
    sources["rig"]["motors"]["drive"]["inertia"] = "0.51 kg*m^2"
    sources["rig"]["limits"] = {}
    rig = assemble(sources, CONVEYOR, standard_library())
    run = run_cycle_on(rig, "rig", "feedback", standard_program())
    assert np.mean(run.record.columns["valve.A.unseen"] == Unseen.VOID) > 0.1
    assert nrmse(run.result, "speed shaft") < 5e-3
    assert max(run.result.noise(valve, 1e-3) for valve in "AB") < 5e-3


@pytest.mark.slow
def test_unknown_valves_are_corrected_by_the_measured_speed() -> None:
    """5 % less flow, 75 instead of 80 Hz, 2 % of overlap: 4 % off without, and half of it with the sensor."""
    worn = {"nominal_flow": {"flow": "57 l/min", "drop": "35 bar", "per": "edge"}, "f90": "75 Hz", "overlap": 0.02}
    found = results(conveyor(valve=worn), "second_order", "feedback", "adaptive")
    off, measured, learned = (nrmse(found[name], "speed shaft") for name in ("second_order", "feedback", "adaptive"))
    assert off > 0.03
    assert measured < 0.55 * off
    assert learned < 0.25 * off


def test_the_model_follows_motor_and_case_leakage() -> None:
    """Estimated speed against the true one, and volumes against the flows of the drive, over the work cycle."""
    rig = conveyor(bridge={"strategy": "second_order"})
    tables = rig.sources["devices"]["rig"]
    names = plant_circuit(tables["machine"], tables["drive"], rig.library).names
    with LockstepRun(rig, trace=True) as run:
        rows = run.run_cycle()
        true = dict(zip(names, run.true_values("rig").T, strict=True))
    estimated = rows[:, rig.layout.column("motor.drive.speed")]
    speed = true["shaft.w"] / (2.0 * pi)
    assert np.ptp(speed) > 5.0
    assert np.sqrt(np.mean((estimated - speed) ** 2)) < 0.01 * np.ptp(speed)
    for side in "AB":
        passed = np.sum(true[f"valve_{side}.q_A"]) * 1e-3
        volume = rows[-1, rig.layout.column(f"motor.drive.volume_{side}")]
        assert abs(passed) > 1e-4
        assert volume == pytest.approx(passed, rel=0.01, abs=2e-6)


def test_without_a_speed_sensor_prediction_is_possible_and_the_log_has_units() -> None:
    rig = conveyor(motor={"speed": None}, bridge={"strategy": "prediction"})
    assert bridge_delay(rig, "A", "prediction", 60.0) == pytest.approx(0.0, abs=1e-9)
    units = units_of(rig)
    assert (units["motor.drive.p_A"], units["motor.drive.speed"], units["motor.drive.work"]) == ("Pa", "1/s", "J")
    assert not [name for name in rig.layout.names if name.startswith("cylinder.")]


def test_a_real_motor_has_a_stand_in() -> None:
    """For virtual commissioning, from the rig file alone: displacement, inertia and leakage of the component."""
    found = stand_in(conveyor(simulation={"supply_pressure": "210 bar"}))
    motor = found.machine.source["components"]["motor_drive"]
    leakage = 0.012 / 6e4 / 1e5
    lost = 32e-6 * 25.0 * (1.0 / motor["volumetric_efficiency"] - 1.0) / 2e7
    assert lost == pytest.approx(leakage, rel=1e-9)
    assert motor["case_share"] == pytest.approx(0.5)
    assert "n" in found.measured


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"port_B": "A"}, "motors.drive.port_B: is the same port as port_A"),
        ({"speed": "p_A"}, 'channel "p_A" has the unit bar; a channel with the unit rpm is required here'),
        ({"displacement": "0 cm^3"}, "motors.drive.displacement"),
        ({"inertia": "1 kg"}, "motors.drive.inertia"),
    ],
)
def test_wrong_values_are_refused_with_their_key(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        conveyor(motor=change)
    assert text in str(refused.value)


def test_a_motor_has_a_name_and_ports_of_its_own() -> None:
    sources: Sources = copy.deepcopy(dict(load_rig(CONVEYOR).sources))
    cylinder = {"bore": "50 mm", "rod_diameter": "30 mm", "stroke": "1 m", "dead_volume_A": "0.4 l", "mass": "400 kg"}
    sources["rig"]["cylinders"] = {"drive": {"port_A": "A", **cylinder}}
    with pytest.raises(ConfigurationError) as refused:
        assemble(sources, CONVEYOR, standard_library())
    assert "motors.drive: is the name of a cylinder, too" in str(refused.value)
    assert 'motors.drive: port "A" already belongs to cylinder "drive"' in str(refused.value)
