"""CaseFigures and verdicts of signals that are known, and the load of a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import degrees, pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from component_bench import program
from lift_bench import lift

from hilserver.fidelity.results import SegmentResult
from hilserver.numerics.arrays import Floats
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.tick.codes import Saturation
from hilserver.virtual_commissioning.cases import IDENTIFIED_FLOW, MORE_FLOW, Case, CaseKind, cases
from hilserver.virtual_commissioning.criteria import CRITERIA, Criterion, Suitability
from hilserver.virtual_commissioning.figures import CaseFigures, Scales, figures, until
from hilserver.virtual_commissioning.remedies import remedies
from hilserver.virtual_commissioning.report import (
    case_grid,
    criteria_grid,
    further_off,
    overview,
    sentences,
    shown_criteria,
)
from hilserver.virtual_commissioning.report import figures as data
from hilserver.virtual_commissioning.stand_in import FIRST_ORDER
from hilserver.virtual_commissioning.subject import Subject
from hilserver.virtual_commissioning.trial import CaseResult, StrategyResult, TrialResult
from hilserver.virtual_commissioning.variations import can_vary, scaled

CONFIG = Path(__file__).parents[2] / "config" / "rigs"
DT = 1e-3
T = DT * np.arange(1.0, 3001.0)
FULL = 1e-3  # m³/s, nominal flow of both valves
SCALES = Scales({"rod": 1.0}, {"A": FULL, "B": FULL}, supply=200e5)
OF_A_MOTOR = Scales({}, {"A": FULL, "B": FULL}, {"shaft": 100.0}, 200e5)
NOTHING: Floats = np.zeros(len(T))


@pytest.fixture(scope="module")
def rig() -> Rig:
    return lift()


def segment(**given: Floats) -> SegmentResult:
    """A case in which nothing moves, except what is given: x, q, p_B, q_reference, command, flags, virtual."""
    return SegmentResult(
        time=T,
        actual={
            "position rod": 0.5 + given.get("x", NOTHING),
            "flow A": given.get("q", NOTHING),
            "flow B": NOTHING,
            "pressure A": NOTHING,
            "pressure B": given.get("p_B", NOTHING),
        },
        reference={
            "position rod": 0.5 + given.get("x_reference", NOTHING),
            "flow A": given.get("q_reference", NOTHING),
            "flow B": NOTHING,
            "pressure A": NOTHING,
            "pressure B": NOTHING,
        },
        virtual={"flow A": given.get("virtual", NOTHING)},
        command={"A": given.get("command", NOTHING), "B": NOTHING},
        saturation={"A": given.get("flags", NOTHING), "B": NOTHING},
    )


def found(rig: Rig, kind: CaseKind = CaseKind.REST, **given: Floats) -> CaseFigures:
    return figures(kind, segment(**given), rig.settings, SCALES, DT)


def test_a_command_that_oscillates_at_rest(rig: Rig) -> None:
    """A sine of 3 % at 12 Hz, on a drift that is none of it, is an RMS of 2.1 % at 12 Hz, and no noise."""
    oscillating = found(rig, command=0.03 * np.sin(2 * pi * 12.0 * T) + 0.01 * T)
    assert oscillating.judged["oscillation"] == pytest.approx(0.03 / sqrt(2.0), rel=0.02)
    assert oscillating.frequency == pytest.approx(12.0, abs=0.5)
    assert oscillating.judged["noise"] < 1e-4


def test_a_required_oscillation_does_not_count(rig: Rig) -> None:
    wave = np.sin(2 * pi * 12.0 * T)
    required = found(rig, command=0.03 * wave, q_reference=0.03 * FULL * wave, q=0.03 * FULL * wave)
    assert required.judged["oscillation"] < 1e-3


def test_a_command_that_oscillates_after_a_step(rig: Rig) -> None:
    """The step itself is none of it, and no noise."""
    step = np.where((T > 0.3) & (T <= 0.8), 0.5, 0.0)
    assert found(rig, CaseKind.STEP, command=step).judged["oscillation"] == pytest.approx(0.0, abs=1e-9)
    ringing = found(rig, CaseKind.STEP, command=step + np.where(T > 0.8, 0.1 * np.sin(2 * pi * 25.0 * T), 0.0))
    assert ringing.judged["oscillation"] == pytest.approx(0.1 / sqrt(2.0), rel=0.02)
    assert ringing.judged["noise"] < 1e-3


def test_noise_of_the_command_is_its_content_at_high_frequency(rig: Rig) -> None:
    noisy = found(rig, command=0.02 * np.sin(2 * pi * 240.0 * T))
    assert noisy.judged["noise"] == pytest.approx(0.02 / sqrt(2.0), rel=0.02)


def test_a_short_drift_is_not_averaged_over_the_case(rig: Rig) -> None:
    """38 l/min for 0.6 s, until the piston is at its end; then nothing flows any more."""
    flow = np.where(T <= 0.6, -38e-3 / 60.0, 0.0)
    sinking = found(rig, q=flow, x=np.cumsum(flow) * DT / 2e-3)
    assert sinking.flow == pytest.approx(-38e-3 / 60.0)
    assert sinking.judged["drift"] == pytest.approx(38e-3 / 60.0 / FULL)
    assert sinking.port == "A"
    assert sinking.lost == pytest.approx(-38e-3 / 60.0 * 0.6 / 2e-3)


def test_errors_are_divided_by_the_motion_or_by_the_machine(rig: Rig) -> None:
    """1 mm of 100 mm is 1 %; of a machine that hardly moves, 5 % of 2 % of its stroke of 1 m."""
    ramp, constant = np.linspace(0.0, 0.1, len(T)), np.full(len(T), 1e-3)
    assert found(rig, CaseKind.CYCLE, x=ramp + constant, x_reference=ramp).judged["position"] == pytest.approx(0.01)
    assert found(rig, CaseKind.CYCLE, x=constant).judged["position"] == pytest.approx(0.05)
    assert found(rig, CaseKind.CYCLE, q=np.full(len(T), 0.01 * FULL)).judged["flow"] == pytest.approx(0.1)
    assert found(rig, CaseKind.CYCLE, p_B=np.full(len(T), 30e5)).judged["pressure"] == pytest.approx(0.15)


def of_a_motor(rig: Rig, kind: CaseKind, w: Floats, w_reference: Floats = NOTHING) -> CaseFigures:
    """Nothing moves but a shaft; the gauge beside it is none."""
    still = segment()
    actual = {**still.actual, "speed shaft": w, "speed gauge": NOTHING}
    reference = {**still.reference, "speed shaft": w_reference, "speed gauge": 9.0 + NOTHING}
    for series in (actual, reference):
        del series["position rod"]
    return figures(kind, replace(still, actual=actual, reference=reference), rig.settings, OF_A_MOTOR, DT)


def test_the_speed_of_a_motor_is_judged_by_its_highest_speed(rig: Rig) -> None:
    """2 rad/s of 50 rad/s are 4 %, whichever way it turns; of a shaft that hardly turns, 20 % of 10 % of 100 rad/s."""
    turning = np.full(len(T), -50.0)
    fast = of_a_motor(rig, CaseKind.SWEEP, turning + 2.0, turning)
    assert fast.judged["speed"] == pytest.approx(0.04)
    assert fast.turned == pytest.approx(2.0)
    assert fast.moved is None
    assert "position" not in fast.judged
    assert of_a_motor(rig, CaseKind.CYCLE, 2.0 + NOTHING).judged["speed"] == pytest.approx(0.2)
    rest = of_a_motor(rig, CaseKind.REST, np.where(T <= 0.25, -2.0, 0.0))
    assert rest.turning == pytest.approx(-1.0), "mean over half a second"
    assert "speed" not in rest.judged
    assert "speed" not in found(rig, CaseKind.CYCLE).judged, "a cylinder alone"


def test_speed_is_in_the_sentences_and_in_all_tables(rig: Rig) -> None:
    """With its unit; there is no column of positions without a cylinder."""
    turning = np.full(len(T), 50.0)

    def trial(error: float, kind: CaseKind = CaseKind.CYCLE) -> TrialResult:
        case = CaseResult(Case(kind, {}), of_a_motor(rig, kind, turning + error, turning))
        return TrialResult("rig", ("feedback",), (StrategyResult("feedback", (case,)),))

    doubtful = trial(2.5)
    (said,) = sentences(doubtful)
    assert said.startswith(
        "feedback (configured): doubtful. Speed 5 % (23.9 rpm at most), doubtful above 3.5 %, in case"
    )
    assert sentences(trial(0.5))[0].startswith("feedback (configured): fit. Speed within 4.77 rpm of the reference")
    assert "speed" in overview(doubtful).head
    assert "posi-\ntion" not in overview(doubtful).head
    assert "5?" in overview(doubtful).rows[0]
    assert case_grid(doubtful.results[0], shown_criteria(doubtful)).rows[0][-1] == "23.9 rpm"
    (case,) = data(doubtful)["strategies"]["feedback"]["cases"]
    assert case["figures"]["speed"] == pytest.approx(0.05)
    assert case["speed_error"] == pytest.approx(2.5)
    assert case["position_error"] is None
    (still,) = sentences(trial(2.5, CaseKind.REST))
    assert "at rest the flow at port A is 0 l/min off" in still


def test_saturation_counts_where_something_flows(rig: Rig) -> None:
    too_small = np.full(len(T), float(Saturation.CAPACITY))
    assert found(rig, flags=too_small, virtual=np.full(len(T), FULL)).judged["saturated"] == 1.0
    assert found(rig, flags=too_small, virtual=np.full(len(T), 0.01 * FULL)).judged["saturated"] == 0.0
    limited = found(rig, flags=np.where(T <= 0.3, float(Saturation.SLEW), 0.0))
    assert limited.judged["saturated"] == limited.limited == pytest.approx(0.1)


def test_only_the_part_that_is_judged_counts(rig: Rig) -> None:
    late = segment(x=np.where(T > 1.0, 0.5, 0.0))
    assert figures(CaseKind.CYCLE, until(late, 1000), rig.settings, SCALES, DT).judged["position"] == 0.0
    assert figures(CaseKind.CYCLE, late, rig.settings, SCALES, DT).judged["position"] > 1.0


# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda c: str(c.name))
def test_limits_are_in_order_and_have_a_reason(criterion: Criterion) -> None:
    assert 0.0 < criterion.doubtful < criterion.unfit
    assert len(criterion.reason) > 40
    assert criterion.verdict(0.99 * criterion.doubtful) is Suitability.FIT
    assert criterion.verdict(1.01 * criterion.doubtful) is Suitability.DOUBTFUL


def test_the_worst_case_decides() -> None:
    def case(value: float) -> CaseResult:
        return CaseResult(Case(CaseKind.REST, {}), CaseFigures({"drift": value}))

    good, worse, bad = case(0.001), case(0.01), case(0.5)
    assert StrategyResult("x", (good,)).verdict is Suitability.FIT
    assert StrategyResult("x", (good, worse)).verdict is Suitability.DOUBTFUL
    assert StrategyResult("x", (bad, good, worse)).verdict is Suitability.UNFIT
    excluded = CaseResult(
        Case(CaseKind.REST, {}), CaseFigures({"drift": 0.5}), exclusion="it sinks by itself", judged=False
    )
    assert StrategyResult("x", (good, excluded)).verdict is Suitability.FIT
    assert StrategyResult("x", (excluded,)).verdict is Suitability.UNFIT, "nothing could be judged"


def test_a_level_that_is_further_off_than_a_lower_one_is_named() -> None:
    def found(strategy: str, position: float) -> StrategyResult:
        return StrategyResult(strategy, (CaseResult(Case(CaseKind.CYCLE, {}), CaseFigures({"position": position})),))

    def said(*results: StrategyResult) -> list[str]:
        return list(further_off(TrialResult("rig", (), results)))

    static, lag = found("inverse_static", 0.035), found("inverse_lag", 0.038)
    (text,) = said(lag, static)
    assert text.startswith("inverse_lag is less accurate than inverse_static, which compensates less: position 3.8 %")
    assert said(static, found("inverse_lag", 0.0353)) == [], "alike"
    assert said(found("inverse_static", 0.001), found("inverse_lag", 0.004)) == [], "fit"
    assert said(static, found("inverse_lag", 0.03), found("feedback", 0.001)) == []
    unfit = found("inverse_static", 0.5)
    assert said(unfit, found("inverse_lag", 0.6)) == [], "no reason to use the lower one"
    (text,) = said(unfit, found("prediction", 0.035), found("feedback", 0.6))
    assert "Use prediction" in text


def test_a_level_whose_speed_is_further_off_is_named() -> None:
    def found(strategy: str, speed: float) -> StrategyResult:
        return StrategyResult(strategy, (CaseResult(Case(CaseKind.CYCLE, {}), CaseFigures({"speed": speed})),))

    (text,) = further_off(TrialResult("rig", (), (found("adaptive", 0.048), found("prediction", 0.012))))
    assert text.startswith(
        "adaptive is less accurate than prediction, which compensates less: speed 4.8 % instead of 1.2"
    )


def test_what_no_strategy_can_correct_is_a_port_without_a_valve_of_its_own() -> None:
    """The flow there is judged against the virtual flow of the same run: what the bridge could not pass."""
    rig = load_rig(CONFIG / "demo.toml")
    settings = rig.settings
    B = np.full(len(T), 0.02 * FULL)
    scales = Scales({"rod": 1.0}, {"A": FULL, "B": FULL}, supply=200e5)
    one = segment()
    wrong = replace(
        one, saturation={}, actual={**one.actual, "flow B": B}, virtual={"flow A": NOTHING, "flow B": NOTHING}
    )
    assert figures(CaseKind.CYCLE, wrong, settings, scales, DT).other_flows == {"B": pytest.approx(0.2)}
    assert figures(CaseKind.CYCLE, wrong, load_rig(CONFIG / "lift.toml").settings, scales, DT).other_flows == {}

    def said(other: float, *more: StrategyResult) -> list[str]:
        judged = CaseFigures({"position": 0.5}, other_flows={"B": other})
        unfit = StrategyResult("feedback", (CaseResult(Case(CaseKind.CYCLE, {}), judged),))
        return list(remedies(Subject(rig, program()), ["feedback"], [unfit, *more], _never))

    (text,) = said(0.2)
    assert text.startswith("Remedy for feedback: a separate valve at port B: no strategy can correct the flow there")
    assert said(0.01) == [], "this flow is right"
    fit = StrategyResult("prediction", (CaseResult(Case(CaseKind.CYCLE, {}), CaseFigures({"position": 0.001})),))
    assert said(0.2, fit) == ["Remedy for feedback: use prediction, which is fit."]


def test_valves_are_to_be_identified_where_only_a_larger_flow_makes_the_rig_swing(rig: Rig) -> None:
    def said(stated: float, more: float, flow: float = MORE_FLOW) -> list[str]:
        values = ((1.0, stated), (flow, more))
        found = (CaseResult(Case(CaseKind.STEP, {}, flow=f), CaseFigures({"drift": drift})) for f, drift in values)
        return list(remedies(Subject(rig, program()), ["feedback"], [StrategyResult("feedback", tuple(found))], _never))

    (text,) = said(0.01, 0.1)
    assert text == (
        "Remedy for feedback: identify the valves (hilserver identify); with exactly the stated flow it is doubtful."
    )
    assert said(0.1, 0.1) == [], "it is no better with the stated flow"
    assert said(0.01, 0.1, IDENTIFIED_FLOW) == [], "they are"


def _never(*_: object) -> list[StrategyResult]:
    raise AssertionError("nothing to try")


def test_remedies_are_those_that_the_runs_support(rig: Rig) -> None:
    """A longer feedback_time and shorter delays are tried, and named if the verdict is better with them."""
    subject = Subject(rig, program())

    def found(strategy: str, limited: float = 0.0, **judged: float) -> StrategyResult:
        return StrategyResult(strategy, (CaseResult(Case(CaseKind.STEP, {}), CaseFigures(judged, limited=limited)),))

    def said(*results: StrategyResult, longer: float = 0.3, sooner: float = 0.3, both: float = 0.3) -> list[str]:
        def again(changed: Subject, names: Sequence[str]) -> list[StrategyResult]:
            valve, sensor = changed.rig.settings.valves["A"], changed.rig.settings.channels["p_A"]
            of = {(0.3, 1.0, 1.0): longer, (0.03, 0.5, 0.5): sooner, (0.3, 0.5, 0.5): both}
            tried = round(valve.bridge.feedback_time, 9), round(1e3 * valve.delay, 9), round(1e3 * sensor.delay, 9)
            return [found(name, oscillation=of[tried]) for name in names]

        return list(remedies(subject, ["feedback"], results, again))

    shaking, calm = found("feedback", oscillation=0.25), found("prediction", oscillation=0.014)
    (text,) = said(shaking, calm)
    assert text == "Remedy for feedback: use prediction, which is only doubtful."
    (text,) = said(shaking, longer=0.001)
    assert text == "Remedy for feedback: with a feedback_time of 0.3 s it is fit."
    (text,) = said(shaking, sooner=0.01)
    assert text == "Remedy for feedback: with half the delay of valves and sensors it is doubtful."
    (text,) = said(shaking, both=0.01)
    assert text.endswith("with a feedback_time of 0.3 s and half the delay of valves and sensors it is doubtful.")
    assert said(shaking, longer=0.001, both=0.001) == said(shaking, longer=0.001), "one is enough"
    fit = found("prediction", oscillation=0.001)
    assert said(shaking, fit, longer=0.001) == ["Remedy for feedback: use prediction, which is fit."]
    assert said(shaking) == said(found("feedback", oscillation=0.001)) == []
    small = found("feedback", saturated=0.4, position=0.2), found("prediction", saturated=0.4, position=0.2)
    (text,) = said(*small)
    assert text.startswith("Remedy for feedback and prediction: the flow is not achievable; use a larger real valve")
    assert said(found("feedback", limited=0.3, saturated=0.4)) == [], "range or slew"
    (text,) = sentences(TrialResult("rig", (), (), remedies=("Remedy.",)))
    assert text == "Remedy."


def test_the_page_shows_the_criteria() -> None:
    page = (Path(__file__).parents[2] / "docs" / "virtual-commissioning.md").read_text()
    for row in criteria_grid().rows:
        assert f"| {' | '.join(row)} |" in page


# --- cases and loads --------------------------------------------------------------------------------------------------


def test_cases_cover_inputs_stroke_and_load(rig: Rig) -> None:
    chosen = list(cases(rig))
    for kind in (CaseKind.REST, CaseKind.STEP):
        assert {c.stroke for c in chosen if c.kind is kind} == {0.1, 0.5, 0.9}
        assert {c.load for c in chosen if c.kind is kind} == {0.5, 1.0, 1.5}
    assert {c.moves for c in chosen if c.kind is CaseKind.STEP} == {"joystick to 0.5", "joystick to -0.5"}
    assert {c.moves for c in chosen if c.kind is CaseKind.SWEEP} == {"joystick to 1", "joystick to -1"}
    assert {c.stroke for c in chosen if c.kind is CaseKind.SWEEP} == {0.1, 0.5, 0.9}
    assert not any(c.cycle["foreseen"] for c in chosen if c.kind in (CaseKind.STEP, CaseKind.SWEEP))
    assert chosen[0].kind is CaseKind.CYCLE
    assert {c.stroke for c in cases(rig, stroke=False)} == {None}
    assert {c.load for c in cases(rig, loads=[1.0])} == {1.0}


def test_masses_forces_and_bodies_are_scaled_and_nothing_else() -> None:
    machine: dict[str, Any] = {
        "components": {
            "cylinder": {"type": "cylinder", "moving_mass": "10 kg"},
            "load": {"type": "load_mass", "mass": "390 kg"},
            "push": {"type": "force_source", "force": "-2 kN"},
        },
        "mechanisms": {"boom": {"definition": {"bodies": {"boom": {"mass": "200 kg", "inertia": "190 kg*m^2"}}}}},
    }
    half = scaled(machine, 0.5)
    assert half["components"]["load"]["mass"] == "195.0 kg"
    assert half["components"]["push"]["force"] == "-1.0 kN"
    assert half["components"]["cylinder"] == machine["components"]["cylinder"]
    assert half["mechanisms"]["boom"]["definition"]["bodies"]["boom"] == {"mass": "100.0 kg", "inertia": "95.0 kg*m^2"}
    assert can_vary(machine)
    assert not can_vary({"components": {"cylinder": machine["components"]["cylinder"]}})


def test_a_first_order_spool_is_replaced_by_one_of_the_same_lag_at_f45() -> None:
    """A critically damped second-order spool of f90 = f45/(√2 - 1) lags by 45° at f45."""
    r = FIRST_ORDER
    assert degrees(np.angle(1.0 / (1.0 - r * r + 2.0j * r))) == pytest.approx(-45.0)
