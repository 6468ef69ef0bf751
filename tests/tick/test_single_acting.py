"""A cylinder whose rod side is open to the tank: no pressure there acts on the piston, whatever it does."""

from __future__ import annotations

import copy
from typing import Any

import lift_bench
import numpy as np
import pytest
from lift_bench import FILE, delays
from rig_bench import merged

from hilserver.circuit.library import standard_library
from hilserver.compiler import standard_program
from hilserver.fidelity.comparison import Comparison
from hilserver.fidelity.segments import CycleSegment, passes, trip_in
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig


def single_acting() -> Rig:
    """The lift with the rod side open, and the valves at port A only."""
    sources: dict[str, Any] = copy.deepcopy(lift_bench._sources())
    rig, device = sources["rig"], sources["devices"]["rig"]
    for table in (rig["channels"], rig["devices"]["rig"]["sensors"]):
        del table["p_B"]
    del rig["ports"]["B"], rig["limits"]["p_B_high"], rig["valves"]["B"], rig["devices"]["rig"]["actuators"]["valve_B"]
    del rig["cylinders"]["lift"]["port_B"], rig["cylinders"]["lift"]["dead_volume_B"]
    del device["drive"]["components"]["valve_B"], device["drive"]["components"]["plug_B"]
    cylinder = device["machine"]["components"]["cylinder"]
    del cylinder["ports"]["B"], cylinder["rod_diameter"], cylinder["dead_volume_B"], device["machine"]["nodes"]["B"]
    cylinder["type"] = "single_acting_cylinder"
    device["machine"]["nodes"]["A"]["pressure"] = "20 bar"
    valve = sources["circuit"]["components"]["main_valve"]
    valve["ports"]["B"] = "plugged"
    sources["circuit"]["components"]["plug"] = {"type": "volume", "ports": {"P": "plugged"}, "volume": "0.1 l"}
    changed = merged(sources, {"rig": {"valves": {"A": {"f90": "72 Hz"}}}})  # so that there is an error to correct
    late = delays("1 ms", "1 ms")["rig"]["valves"]["A"]
    changed["rig"]["valves"]["A"] |= late
    return assemble(changed, FILE, standard_library())


@pytest.fixture(scope="module")
def errors() -> dict[str, float]:
    """NRMSE over the work cycle, by quantity, with feedback."""
    rig = single_acting()
    comparison = Comparison.of(rig, standard_program())
    record, true_values = comparison.bridged(rig, "feedback")
    assert trip_in(record, rig) is None
    segment, _ = comparison.evaluated(record, true_values, CycleSegment(passes(record)[0], 0.0))
    return {name: deviation.nrmse for name, deviation in segment.deviations.items()}


def test_the_machine_follows_the_virtual_circuit(errors: dict[str, float]) -> None:
    """As closely as the lift with both ports: the reference simulation has no pressure at the rod side either."""
    assert errors["position rod"] < 2e-4
    assert errors["flow A"] < 5e-3
    assert errors["pressure A"] < 2e-2


def test_the_estimated_load_balances_the_piston() -> None:
    """At rest the force on the piston is the pressure at A times its area, wherever the piston has moved."""
    rig = single_acting()
    record, _ = Comparison.of(rig, standard_program()).bridged(rig, "feedback")
    force, pressure = record.columns["cylinder.lift.F"][-200:], record.columns["cylinder.lift.p_A"][-200:]
    np.testing.assert_allclose(force, pressure * 0.25 * np.pi * 0.05**2, rtol=1e-3)
