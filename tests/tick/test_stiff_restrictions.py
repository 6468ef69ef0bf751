"""Restrictions that are laminar only near zero drop, at a measured port: no stiffness makes the bridge oscillate.

Near zero drop the square root law is the steeper the lower the transition pressure is: circuit and chamber settle in
a few microseconds. The judge is outside of the bridge, as in `test_port_family`; the circuits, the rigs and the limits
are those of that family.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt
from pathlib import Path

import pytest
from component_bench import program
from port_account import Judgement, judge
from port_family import Case
from port_sizes import SIZES, STANDSTILLS, Table

from hilserver.circuit.library import standard_library
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.virtual_commissioning.before_arming import examined

pytestmark = pytest.mark.slow

FEEDBACK = "feedback"
POSITION, PRESSURE, NOISE, DRIFT, ACCOUNT = 1e-3, 0.03, 0.015, 1e-3, 1e-3
"""As in `test_port_family`."""
TRANSITIONS = ("0.1 bar", "0.01 bar", "0.001 bar")
"""Transition pressures; those of the family are 1 bar."""
EXPLICIT = {"integrator": "rk4", "substeps": 20}
"""Stable for the circuits without a small volume."""
IMPLICIT = {"integrator": "rosenbrock", "substeps": 10}
"""Of the others; with fewer steps, those of the stiffest take longer."""

Change = Callable[[Table], Table]


def stiff(*cases: Case) -> list[tuple[Case, str]]:
    """Each case with the highest and with the lowest transition pressure, every third also with that between them."""
    return [(case, each) for k, case in enumerate(cases) for each in (TRANSITIONS if k % 3 == 0 else TRANSITIONS[::2])]


def rig_with(case: Case, kind: str, change: Change, solver: Table | None = None) -> Rig:
    """The rig of a case, with its components of this kind changed."""
    sources = case.sources()
    components = sources["circuit"]["components"]
    sources["circuit"]["components"] = {n: change(c) if c["type"] == kind else c for n, c in components.items()}
    sources["circuit"]["solver"] = solver or IMPLICIT
    return assemble(sources, Path(f"{case}.toml"), standard_library())


def laminar_below(transition: str) -> Change:
    """Another transition pressure."""
    return lambda component: {**component, "transition_pressure": transition}


def by_diameter(component: Table) -> Table:
    """The sharp-edged hole that passes the same flow; its transition pressure follows from diameter and viscosity."""
    flow, drop = (float(component["nominal_flow"][key].split()[0]) for key in ("flow", "drop"))
    area = flow / 6e4 / (0.62 * sqrt(2.0 * drop * 1e5 / 870.0))
    kept = {key: value for key, value in component.items() if key != "nominal_flow"}
    return {**kept, "diameter": f"{1e3 * sqrt(4.0 * area / pi):.6g} mm"}


def judged(rig: Rig, case: Case) -> Judgement:
    """With `feedback`, over the work cycle."""
    return judge(rig, FEEDBACK, program(), STANDSTILLS[case.load])


def assert_as_if_installed(found: Judgement) -> None:
    """The limits of the family."""
    assert found.tripped == ""
    assert found.position < POSITION
    assert found.pressure < PRESSURE
    assert found.noise < NOISE
    assert not found.drift > DRIFT
    assert max(found.unaccounted, found.owed, found.lost) < ACCOUNT


@pytest.mark.parametrize(
    ("case", "transition"),
    stiff(
        *(Case("orifice", size, "light") for size in SIZES),
        *(Case("orifice, to the tank", size, "heavy") for size in SIZES),
        *(Case("pressure_source", size, "light") for size in SIZES),
        Case("fixed_pump", "middle", "light"),
        Case("hose", "middle", "light"),
        Case("volume, small", "middle", "light"),
    ),
    ids=str,
)
def test_an_orifice_is_as_if_it_were_installed_however_stiff(case: Case, transition: str) -> None:
    assert_as_if_installed(judged(rig_with(case, "orifice", laminar_below(transition)), case))


@pytest.mark.parametrize(
    ("case", "transition"),
    stiff(
        Case("check_valve", "small", "light"),
        Case("check_valve", "large", "light"),
        Case("throttle_check_valve", "middle", "light"),
        Case("flow_sensor", "middle", "light"),
    ),
    ids=str,
)
def test_other_restrictions_are_too(case: Case, transition: str) -> None:
    assert_as_if_installed(judged(rig_with(case, case.kind, laminar_below(transition)), case))


@pytest.mark.parametrize(
    "case",
    [
        Case("orifice", "small", "light"),
        Case("orifice", "large", "heavy"),
        Case("orifice, to the tank", "middle", "heavy"),
        Case("pressure_source", "small", "light"),
        Case("fixed_pump", "middle", "light"),
    ],
    ids=str,
)
def test_a_sharp_edged_hole_by_its_diameter_is_too(case: Case) -> None:
    assert_as_if_installed(judged(rig_with(case, "orifice", by_diameter), case))


@pytest.mark.parametrize(
    ("case", "transition"),
    stiff(
        Case("orifice, to the tank", "middle", "heavy"),
        Case("pressure_source", "large", "light"),
        Case("fixed_pump", "small", "light"),
    ),
    ids=str,
)
def test_a_circuit_with_an_explicit_integrator_is_too(case: Case, transition: str) -> None:
    assert_as_if_installed(judged(rig_with(case, "orifice", laminar_below(transition), EXPLICIT), case))


@pytest.mark.parametrize("case", [Case("pressure_source", "small", "light"), Case("hose", "middle", "light")], ids=str)
def test_it_may_be_armed(case: Case) -> None:
    assert not examined(rig_with(case, "orifice", laminar_below("0.01 bar")), [FEEDBACK]).refusals


@pytest.mark.parametrize("transition", ["1 bar", "0.1 bar", "0.01 bar"])
def test_a_source_that_holds_a_small_chamber_leaves_the_command_quiet(transition: str) -> None:
    """Chambers of 50 ml and more behind hardly any resistance, a servo valve of 100 Hz, ticks of 1 ms."""
    case = Case("pressure_source", "small", "light")
    sources = case.sources()
    for cylinder in (
        sources["devices"]["rig"]["machine"]["components"]["cylinder"],
        sources["rig"]["cylinders"]["cylinder"],
    ):
        cylinder |= {"dead_volume_A": "0.05 l", "dead_volume_B": "0.05 l"}
    wide = sources["circuit"]["components"]["wide"]
    wide["transition_pressure"] = transition
    assert_as_if_installed(judged(assemble(sources, Path(f"{case}.toml"), standard_library()), case))
