"""Machines other than one cylinder, and their oil, as described and with unknown properties."""

from __future__ import annotations

import copy
import functools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gantry import LIFT, gantry

from hilserver.circuit.library import standard_library
from hilserver.compiler import standard_program
from hilserver.fidelity.cycle_run import run_cycle_on
from hilserver.fidelity.from_log import fidelity_of_log
from hilserver.fidelity.results import SegmentResult
from hilserver.fidelity.strategies import compare
from hilserver.fidelity.unknowns import UNKNOWNS, applicable, varied
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.units import to_si

pytestmark = pytest.mark.slow

CONVEYOR = Path(__file__).parents[2] / "config/rigs/conveyor.toml"


def conveyor() -> Rig:
    return load_rig(CONVEYOR)


MACHINES = {"gantry": gantry, "conveyor": conveyor}
MOTION = {"gantry": ("position rod", "position rod_2"), "conveyor": ("speed shaft",)}


def wild(rig: Rig, seed: int) -> Rig:
    """The rig with all unknowns of this seed."""
    return assemble(varied(rig, "rig", applicable(rig, "rig"), seed), rig.file, rig.library)


def worst(result: SegmentResult, quantities: tuple[str, ...]) -> float:
    return max(result.deviations[quantity].nrmse for quantity in quantities)


def test_coupled_cylinders_move_as_if_the_circuit_were_installed() -> None:
    """With a beam between their unequal loads, which the bridge takes for an unknown force: within 0.02 %."""
    found = compare(gantry(), ["inverse_static", "prediction", "feedback"], chosen_by_user=True)
    by_name = {v.name: v.cycle for v in found.variants if v.cycle is not None}
    errors = [worst(by_name[name], MOTION["gantry"]) for name in ("inverse_static", "prediction", "feedback")]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 2e-4
    coupled = by_name["feedback"].reference
    assert np.ptp(coupled["position rod"] - coupled["position rod_2"]) > 1e-3  # the beam is bent


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", MACHINES)
def test_unknown_properties_are_compensated(name: str, seed: int) -> None:
    """No trip, no oscillation, and closer than with the level below that has no feedback."""
    rig, program = wild(machine(name), seed), standard_program()
    off, compensated = (run_cycle_on(rig, "rig", strategy, program) for strategy in ("second_order", "adaptive"))
    assert worst(compensated.result, MOTION[name]) < 0.5 * worst(off.result, MOTION[name])
    assert max(compensated.result.noise(valve, 1e-3) for valve in compensated.result.command) < 0.01


@pytest.mark.parametrize("share", [0.93, 1.07])
@pytest.mark.parametrize("file", [LIFT, CONVEYOR], ids=["lift", "conveyor"])
def test_prediction_is_not_misled_by_valves_with_another_flow(file: Path, share: float) -> None:
    """Without feedback, the machine moves with the oil of the real valve: the look-ahead must not expect the rest."""
    sources = copy.deepcopy(dict(load_rig(file).sources))
    for table in sources["devices"]["rig"]["drive"]["components"].values():
        if table["type"] == "servo_valve":
            nominal = to_si(table["nominal_flow"]["flow"], "m^3/s")
            table["nominal_flow"]["flow"] = f"{share * nominal} m^3/s"
    rig = assemble(sources, file, standard_library())
    below, predicted = (
        run_cycle_on(rig, "rig", strategy, standard_program()).result for strategy in ("supply_droop", "prediction")
    )
    motion = "position rod" if file == LIFT else "speed shaft"
    assert below.deviations[motion].nrmse > 0.015
    assert predicted.deviations[motion].nrmse < 1.01 * below.deviations[motion].nrmse


@functools.cache
def machine(name: str) -> Rig:
    return MACHINES[name]()


def test_viscosity_moves_the_end_of_laminar_flow_with_its_square() -> None:
    """At a given Reynolds number, the drop is proportional to the viscosity squared, the leakage to its inverse."""
    viscosity = next(each for each in UNKNOWNS if each.name == "viscosity")
    sources = copy.deepcopy(dict(load_rig(LIFT).sources))
    for table in sources["devices"]["rig"]["machine"]["components"].values():
        if table["type"] == "cylinder":
            table["leakage"] = "0.01 l/min/bar"
    device = varied(assemble(sources, LIFT, standard_library()), "rig", [viscosity], 4)["devices"]
    ratio = to_si(device["rig"]["machine"]["fluid"]["viscosity"], "m^2/s") / 46e-6
    assert abs(ratio - 1.0) > 0.1
    for table in device["rig"]["drive"]["components"].values():
        if table["type"] == "servo_valve":
            assert to_si(table["transition_pressure"], "Pa") == pytest.approx(1e5 * ratio**2)
    leakage = to_si(device["rig"]["machine"]["components"]["cylinder"]["leakage"], "m^3/(s*Pa)")
    assert leakage * 6e9 == pytest.approx(0.01 / ratio)


def test_the_log_of_a_real_motor_is_compared_with_the_motor_of_the_rig_file(tmp_path: Path) -> None:
    """Its load is known from the estimated torque only: the same speed and flow as beside the simulated machine."""
    rig, log = conveyor(), tmp_path / "run.arrow"
    with LockstepRun(rig, log) as run:
        run.start()
        run.run(run.ticks_per_cycle + 10)
    known = fidelity_of_log(rig, log)
    result = fidelity_of_log(replace(rig, devices=()), log)
    assert "the motors of the rig file, with the external torques" in result.reference
    for quantity in ("speed drive", "flow A", "flow B"):
        ours, theirs = (each.cycle_errors(quantity)["feedback"].nrmse for each in (result, known))
        assert theirs < 2e-3
        assert ours < theirs + 2e-3, quantity
    speeds = result.variants[0].cycle
    assert speeds is not None
    assert np.abs(speeds.actual["speed drive"]).max() > 50.0  # rad/s
