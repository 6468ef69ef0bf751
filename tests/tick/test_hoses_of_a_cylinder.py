"""Hoses between valve and piston, whose walls stiffen with pressure: the bridge's model against that of a hose."""

from __future__ import annotations

from dataclasses import replace
from math import pi, sqrt
from typing import Any

import numpy as np
import pytest
from component_bench import program
from lift_bench import lift
from rig_bench import merged

from hilserver.circuit.analysis import Analysis
from hilserver.circuit.library import standard_library
from hilserver.errors import HilserverError
from hilserver.fidelity.cycle_run import run_cycle_on
from hilserver.rig.rig import Rig
from hilserver.simulation.machine import machine_alone, machine_of_actuators
from hilserver.tick.cylinder import behind_A, behind_B, chamber_A, chamber_B
from hilserver.tick.plan import CylinderRecord
from hilserver.tick.records import plain
from hilserver.units import BAR

DEAD, HOSE, B, B_hc = 0.6e-3, 0.4e-3, 1.6e9, 1.8e5
"""Dead volume at each port and its part in a hose, m³; bulk modulus of the oil, Pa; coefficient of the wall, Pa^0.5."""
BORE, ROD, STROKE = 0.05, 0.03, 1.0
AREAS = 0.25 * pi * BORE**2, 0.25 * pi * (BORE**2 - ROD**2)
STATED: dict[str, Any] = {
    "bulk_modulus": f"{B!r} Pa",
    **{f"dead_volume_{side}": f"{DEAD!r} m^3" for side in "AB"},
    **{f"hose_volume_{side}": f"{HOSE!r} m^3" for side in "AB"},
    "hose_modulus": f"{B_hc!r} Pa^0.5",
}


def rig_of(**changed: Any) -> Rig:
    return lift({"rig": {"cylinders": {"lift": {**STATED, **changed}}}})


def record_of(**changed: Any) -> CylinderRecord:
    """The lift's cylinder with hoses, as the bridge knows it."""
    return plain(rig_of(**changed).plan.cylinder[0])


@pytest.mark.parametrize("p", [-0.5 * BAR, 3.0 * BAR, 30.0 * BAR, 150.0 * BAR])
def test_a_chamber_is_its_oil_and_the_walls(p: float) -> None:
    """V/B + V_h/(B_hc·sqrt(p)), as stiff below 1 bar as there (theory §2)."""
    m, x = record_of(), 0.3
    wall = HOSE / (B_hc * sqrt(max(p, BAR)))
    swept = AREAS[0] * x, AREAS[1] * (STROKE - x)
    for of, inside in ((chamber_A, swept[0]), (chamber_B, swept[1])):
        assert of(x, p, m) == pytest.approx((DEAD + inside) / B + wall, rel=1e-12)
    for of, inside in ((behind_A, swept[0]), (behind_B, swept[1])):  # a hose is before the restriction
        assert of(x, p, m) == pytest.approx((DEAD - HOSE + inside) / B, rel=1e-12)


def test_the_machine_of_the_rig_file_has_them() -> None:
    """It is the reference of a real rig: 10 µs of a flow into its ports raise their pressures by q·t/C."""
    p, q, t = 40.0 * BAR, 1e-4, 1e-5
    for oil in (B, 1.5 * B):  # of the circuit: the cylinder has its own modulus
        rig = rig_of()
        fluid = {"bulk_modulus": f"{oil!r} Pa"}
        machine = machine_of_actuators(rig.settings, standard_library(), fluid, {"lift": 0.5})
        assert machine is not None
        nodes = {**{port: {"pressure": f"{p!r} Pa"} for port in "AB"}, "rod of lift": {"position": "0.5 m"}}
        analysis = Analysis(program(), machine_alone(rig, replace(machine, source={**machine.source, "nodes": nodes})))
        place = list(analysis.packed.values).index
        load = (AREAS[0] - AREAS[1]) * p
        for name, value in {"flow_into_A": q, "flow_into_B": q, "load_of_lift": load}.items():
            analysis.values[place(name)] = value
        analysis.advance(10, 0.1 * t)
        for port, area in zip("AB", AREAS, strict=True):
            C = (DEAD + 0.5 * area) / B + HOSE / (B_hc * sqrt(p))
            assert analysis.values[place(f"{port}.p")] - p == pytest.approx(q * t / C, rel=1e-3), (port, oil)


def test_pressures_follow_the_virtual_circuit_where_hoses_are_stated_as_such() -> None:
    """`feedback` on a rig with hoses of 60 % of the dead volume, against the reference simulation.

    A hose that is told as oil that is equally soft at 80 bar is too soft at high pressure, and too stiff at low ones.
    """
    dead, hose = 0.4e-3, 0.24e-3
    length = f"{hose / (0.25 * pi * 0.016**2)!r} m"
    size = {"type": "hose", "inner_diameter": "16 mm", "length": length, "wall_coefficient": f"{B_hc!r} Pa^0.5"}
    parts: dict[str, Any] = {f"hose_{port}": {**size, "ports": {"P": port}} for port in "AB"}
    parts["cylinder"] = {f"dead_volume_{port}": f"{dead - hose!r} m^3" for port in "AB"}
    device = {"devices": {"rig": {"machine": {"components": parts}}}}
    as_hose = {f"hose_volume_{side}": f"{hose!r} m^3" for side in "AB"} | {"hose_modulus": f"{B_hc!r} Pa^0.5"}
    oil = 1.5e9
    as_oil = {f"dead_volume_{side}": f"{dead + hose * oil / (B_hc * sqrt(80.0 * BAR))!r} m^3" for side in "AB"}
    errors = {}
    for name, stated in (("hose", as_hose), ("oil", as_oil)):
        cylinder = {"bulk_modulus": f"{oil!r} Pa", **stated}
        rig = lift(merged(device, {"rig": {"cylinders": {"lift": cylinder}}}))
        run = run_cycle_on(rig, "rig", "feedback", program())
        errors[name] = np.array([run.result.deviations[f"pressure {side}"].nrmse for side in "AB"])
    assert np.all(errors["hose"] < 0.5 * errors["oil"]), errors


def test_a_hose_larger_than_the_dead_volume_is_refused() -> None:
    with pytest.raises(HilserverError, match=r"hose_volume_B of 0\.7 l is a part of dead_volume_B, 0\.6 l, and can't"):
        rig_of(hose_volume_B="0.7 l")
