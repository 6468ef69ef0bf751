"""Everything that can stand at a measured port, on rigs of three sizes, light and heavy: is it as if it were installed?

The judge is outside of the bridge: the reference simulation, and the oil that the simulated machine has received
(`port_account`). What the product does not do yet is listed (`REPORTED`), and reported before arming; the test turns
red when it is mended.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from component_bench import program
from port_account import Judgement, installed, judge, run_with, unbalanced
from port_circuits import KINDS
from port_family import CLOSED, SOURCE, Case, Ready, closed
from port_sizes import SIZES, STANDSTILLS

from hilserver.circuit.library import standard_library
from hilserver.virtual_commissioning.before_arming import examined

pytestmark = pytest.mark.slow

STATIC, PREDICTION, FEEDBACK = "inverse_static", "prediction", "feedback"
POSITION = 1e-3  # NRMSE
REPORTED_POSITION = 3e-3  # of a circuit whose noise is reported before arming
HELD_POSITION = 2e-3  # where the circuit holds chamber B: without feedback, what flows at the start is not made good
ALIKE = 5e-4  # NRMSE of positions that differ by the sensors' noise
PRESSURE = 0.03  # NRMSE, of a range of at least 50 bar
ACCOUNT = 1e-3  # of the delivered volume
NOISE = 0.015  # of full command, RMS above 100 Hz: a valve that follows an on/off valve of 40 ms has 0.01
UNSTEADY = 0.05  # the same, of a command that oscillates between its limits
DRIFT = 1e-3  # of the travel, in 0.3 s of standstill

TWO: list[Case | Ready] = [
    Case("proportional_valve_4_3", "large", "light"),
    Case("servo_valve", "small", "heavy"),
    Case("directional_valve_4_3", "middle", "heavy"),
    Case("directional_valve_4_2", "large", "heavy"),
    Case("directional_valve_3_2", "small", "light"),
    Case("directional_valve_2_2", "middle", "light"),
    Case("load_sensing_valve", "small", "light"),
    Case("check_valve", "middle", "light"),
    Case("check_valve, small line", "large", "heavy"),
    Case("pilot_operated_check_valve", "small", "light"),
    Case("counterbalance_valve", "large", "heavy"),
    Case("pressure_compensator", "large", "light"),
    Case("pressure_compensator, behind", "small", "light"),
    Case("relief_valve", "middle", "light"),
    Case("relief_valve, return", "middle", "heavy"),
    Case("static_relief_valve", "small", "heavy"),
    Case("orifice", "small", "light"),
    Case("throttle_check_valve", "large", "light"),
    Case("hose", "middle", "light"),
    Case("accumulator", "middle", "heavy"),
    Case("flow_control_valve_2_way", "small", "heavy"),
    Case("flow_control_valve_3_way", "large", "light"),
    Case("reducing_valve", "middle", "heavy"),
    Case("sequence_valve", "large", "heavy"),
    Case("shuttle_valve", "middle", "light"),
    Case("unloading_valve", "small", "light"),
    Case("fixed_pump", "middle", "light"),
    Case("orifice, to the tank", "middle", "heavy"),
    Case("pressure_compensated_pump", "large", "heavy"),
    Case("power_limited_pump", "middle", "light"),
    Case("pressure_source", "middle", "light"),
    Case("hydraulic_motor", "small", "light"),
    Case("single_acting_cylinder, at the port", "middle", "light"),
    Case("volume, small", "middle", "light"),
    Case("hose, at the port", "middle", "light"),
    Ready("verification"),
    Ready("boom", "slow"),
]
"""A servo valve for each port."""
ONE = [
    Case("proportional_valve_4_3", "middle", "light", 1),
    Case("check_valve", "small", "light", 1),
    Case("counterbalance_valve", "middle", "light", 1),
    Case("pressure_compensator", "large", "heavy", 1),
]
"""One servo valve for both ports: port B receives what the other edges pass, so the pressures are not the circuit's."""
FAR = ("relief_valve, return", "accumulator", "hydraulic_motor", "single_acting_cylinder, at the port")
"""Kinds of `TWO` with which the strategy `prediction` is further off than feedback may be."""
NOT_AT_A_PORT = {
    "tank": "prescribes the pressure that is measured there: refused when packed (behind an orifice it is a kind)",
    "cylinder": "a chamber is a vessel, as single_acting_cylinder, at the port",
    "double_rod_cylinder": "a chamber is a vessel, as single_acting_cylinder, at the port",
}
"""Component types with hydraulic ports that no circuit of the family has at a port of the machine, with the reason."""
REPORTED: list[tuple[Case | Ready, str, str | None, str]] = [
    (Ready("regenerative"), FEEDBACK, None, "Noise"),
    (Case("reducing_valve", "middle", "light"), "inverse_lag", STATIC, "Position"),
]
"""Cases that are not as if the circuit were installed, or further off than a lower level: with the strategy, that
level, and the figure by which the check before arming reports it. In the fast approach of the first, the real valve of
the rod side has 1.7 bar, of which the sensors' noise is some per cent; in the second, the level differentiates the
pressures at the ports."""


def found(case: Case | Ready, strategy: str) -> Judgement:
    """The judgement of a case. Strategies that are compared in any case are run together: one reference serves all."""
    both = PREDICTION, FEEDBACK
    together = both if case in TWO and strategy in both else (strategy,)
    return judgements(case, together)[strategy]


@functools.cache
def judgements(case: Case | Ready, strategies: tuple[str, ...]) -> dict[str, Judgement]:
    """The same of several strategies."""
    standstills = STANDSTILLS[case.load] if isinstance(case, Case) else ()
    rig = case.rig()
    reference = installed(rig)
    return {name: judge(rig, name, program(), standstills, reference) for name in strategies}


def test_every_component_type_is_at_a_port_or_cannot_be() -> None:
    hydraulic = {name for name, kind in standard_library().types.items() if kind.hydraulic}
    at_a_port = {kind.partition(",")[0] for kind in KINDS}
    assert at_a_port | set(NOT_AT_A_PORT) == hydraulic
    assert not at_a_port & set(NOT_AT_A_PORT)


@pytest.mark.parametrize("case", TWO, ids=str)
def test_the_machine_moves_as_if_the_circuit_were_installed(case: Case | Ready) -> None:
    """With `feedback`: position within 0.1 %, no oscillation, and every drop is accounted for within 0.1 %."""
    judged = found(case, FEEDBACK)
    assert judged.tripped == ""
    assert judged.position < POSITION
    assert judged.pressure < PRESSURE
    assert judged.noise < NOISE
    assert not judged.drift > DRIFT
    assert judged.unaccounted < ACCOUNT
    assert judged.owed < ACCOUNT
    assert judged.lost < ACCOUNT


@pytest.mark.parametrize("case", TWO, ids=str)
def test_a_higher_strategy_is_no_further_off(case: Case | Ready) -> None:
    """The lowest one is as late as the valve, so off by 0.16 % at least: it need not run if the next one is closer."""
    prediction, feedback = (found(case, strategy) for strategy in (PREDICTION, FEEDBACK))
    assert prediction.tripped == ""
    if isinstance(case, Case) and case.kind in FAR:
        static = found(case, STATIC)
        assert static.tripped or prediction.position < static.position + ALIKE
    else:
        is_held = isinstance(case, Case) and case.kind == "pressure_source"
        assert prediction.position < (HELD_POSITION if is_held else POSITION)
    assert feedback.position < prediction.position + ALIKE


@pytest.mark.parametrize("case", ONE, ids=str)
def test_one_valve_delivers_what_the_circuit_has_passed(case: Case) -> None:
    judged = found(case, FEEDBACK)
    assert judged.tripped == ""
    assert judged.noise < NOISE
    assert max(judged.unaccounted, judged.owed, judged.lost) < ACCOUNT
    assert judged.position < found(case, STATIC).position + ALIKE


@pytest.mark.parametrize("kind", CLOSED)
def test_what_is_asked_is_what_the_circuit_has_passed(kind: str) -> None:
    """|V_asked - V_circuit| < 0.1 %: a source fills the line in front of the component, and nothing else does."""
    case = Case(kind, "small", "light")
    rig, line = closed(case)
    run, trip = run_with(rig, FEEDBACK, program())
    assert run is not None, trip
    up = np.clip(run.record.columns["input.joystick"], 0.0, 1.0)
    given = np.cumsum(up) * 1e-3 * SOURCE * SIZES[case.size].full / 6e4
    assert unbalanced(run, "A", "line_A", line, given) < 1e-4


@pytest.mark.parametrize(
    ("case", "strategy"),
    [
        (Case("accumulator", "middle", "light"), STATIC),
        (Case("pressure_source", "middle", "light"), STATIC),
        (Case("relief_valve, return", "middle", "light"), STATIC),
        (Ready("regenerative"), STATIC),
        (Ready("lowering"), STATIC),
        (Ready("lowering"), "inverse_lag"),
    ],
    ids=str,
)
def test_a_strategy_that_oscillates_is_refused_before_arming(case: Case | Ready, strategy: str) -> None:
    """`lowering` oscillates while it lifts, in the eighth second of its cycle."""
    judged = found(case, strategy)
    assert judged.tripped or judged.noise > UNSTEADY
    assert examined(case.rig(), [strategy]).refusals


@pytest.mark.parametrize("case", [*TWO[::6], Ready("lowering")], ids=str)
def test_a_strategy_that_holds_everything_is_not_refused(case: Case | Ready) -> None:
    assert not examined(case.rig(), [FEEDBACK]).refusals


@pytest.mark.parametrize(("case", "strategy", "lower", "figure"), REPORTED, ids=str)
def test_what_is_not_as_installed_is_reported_before_arming(
    case: Case | Ready, strategy: str, lower: str | None, figure: str
) -> None:
    judged = found(case, strategy)
    assert judged.tripped == ""
    if lower is None:
        assert judged.position < REPORTED_POSITION
        assert judged.pressure < PRESSURE
        assert judged.unaccounted < ACCOUNT
        assert judged.noise > NOISE, "mended: it belongs to TWO"
    else:
        assert judged.position > found(case, lower).position + ALIKE, "mended"
    said = examined(case.rig(), [strategy])
    assert any(f" {figure} " in text for text in (*said.doubts, *said.refusals))


@pytest.mark.parametrize(
    ("case", "lower", "higher"),
    [
        (Case("hose", "middle", "light"), "inverse_lag_leakage", "second_order"),
        (Case("pilot_operated_check_valve", "middle", "light"), "supply_droop", PREDICTION),
    ],
    ids=str,
)
def test_a_rung_is_no_further_off_than_the_one_below(case: Case | Ready, lower: str, higher: str) -> None:
    """These two were, until the lead was filtered."""
    assert found(case, higher).position < found(case, lower).position + ALIKE
