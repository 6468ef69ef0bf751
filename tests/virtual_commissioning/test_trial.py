"""Virtual commissioning of rigs that are known to be good or bad: the simulated machine itself is the judge."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Command
from component_bench import program
from lift_bench import FILE, lift, of_valves
from lowering_bench import CONFIG, VALVE, lowering
from rig_bench import merged
from slow_lift import slow_lift
from trial_bench import SUPPLY, chosen, run

from hilserver.circuit.library import standard_library
from hilserver.errors import ConfigurationError
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.toml import read_toml
from hilserver.units import to_si
from hilserver.virtual_commissioning import report
from hilserver.virtual_commissioning.before_arming import answer, examined
from hilserver.virtual_commissioning.cases import PULLING, CaseKind, cases, short_cases
from hilserver.virtual_commissioning.criteria import Suitability
from hilserver.virtual_commissioning.exclusions import _limits
from hilserver.virtual_commissioning.request import Findings, Request
from hilserver.virtual_commissioning.stand_in import stand_in, unrestricted
from hilserver.virtual_commissioning.subject import Subject
from hilserver.virtual_commissioning.trial import StrategyResult, TrialResult, commission

pytestmark = pytest.mark.slow


# --- a good rig -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good() -> TrialResult:
    """The lift rig, with a servo valve for each port."""
    return commission(lift(of_valves(bridge={"strategy": "prediction"})), ["inverse_static", "feedback"])


def test_a_good_rig_is_fit(good: TrialResult) -> None:
    by_name = {found.strategy: found for found in good.results}
    assert by_name["prediction"].verdict is Suitability.FIT
    assert good.verdict is Suitability.FIT
    assert by_name["inverse_static"].verdict is Suitability.DOUBTFUL  # 3 ms late at its steps, but the load is held
    assert report.refusals(good) == report.refusals(good, strict=True) == []
    as_stated = [found for found in by_name["feedback"].cases if found.case.load == 1.0]
    assert {found.verdict for found in as_stated} == {Suitability.FIT}
    assert all(f.figures.judged["drift"] < 1e-3 for f in as_stated if f.case.kind is CaseKind.REST)


@pytest.mark.parametrize("strategy", ["prediction", "feedback"])
def test_a_strategy_that_oscillates_with_half_the_load_is_not_fit(strategy: str) -> None:
    """The judge is the pressure in the machine after a step: it decays, or it grows while the bridge drives it."""
    rig = lift()
    (case,) = (c for c in chosen(rig, CaseKind.STEP, load=0.5) if "to 0.5" in c.moves)
    (found,) = run(rig, [strategy], [case]).values()
    half = Subject(rig, program()).of(case)
    record, true = half.run(strategy)
    p = true[:, list(half.comparison.plant.names).index("B.p")]
    since = record.columns["cycle_time"]
    early, late = (float(np.ptp(p[(since > a) & (since <= a + 0.2)])) for a in (0.9, 1.4))
    assert (found.verdict is Suitability.FIT) == (late < early)


def test_limits_of_the_machine_do_not_count_against_the_strategy(good: TrialResult) -> None:
    """At 90 % of the stroke a step outwards ends at the stop, with the circuit connected directly too."""
    (out,) = [
        c
        for c in good.results[0].cases
        if (c.case.kind, c.case.stroke, c.case.flow) == (CaseKind.STEP, 0.9, 1.0) and "to 0.5" in c.case.moves
    ]
    assert "rod reaches the end of its stroke in the reference simulation" in out.exclusion
    assert out.judged
    assert any("Judged only until rod reaches the end of its stroke" in text for text in report.sentences(good))


def test_a_limit_that_also_acts_without_a_bridge_does_not_count() -> None:
    """The rod moves out by half a second's flow, 65 mm or so; the limit trips 30 mm further out."""
    narrow = {"rig": {"limits": {"out": {"channel": "x", "max": "530 mm", "action": "trip"}}}}
    rig = lift(narrow)
    (case,) = (c for c in chosen(rig, CaseKind.STEP) if "to 0.5" in c.moves)
    (found,) = run(rig, ["feedback"], [case]).values()
    assert found.cases[0].trip is not None
    assert found.cases[0].trip.cause == "limit out"
    assert not found.trips
    assert found.cases[0].exclusion.startswith("limit out acts in the reference simulation at")
    assert found.verdict is Suitability.FIT


def test_a_pump_that_an_output_switches_on_runs_when_a_case_starts() -> None:
    """A pump that fills 50 l to 140 bar takes half a second; a strategy would be blamed for the missing supply."""
    stated = load_rig(Path(__file__).parents[1] / "golden" / "workshop_rig.toml")
    pump = {"type": "pressure_compensated_pump", "ports": {"P": "S", "T": "T"}, "drive": "pump"}
    supply = {
        "supply": {**pump, "max_flow": "60 l/min", "set_pressure": "140 bar", "pressure": None, "command": None},
        "filled": {"type": "volume", "ports": {"P": "S"}, "volume": "50 l"},
    }
    sources = merged(stated.sources, {"devices": {"rig": {"drive": {"components": supply}}}})
    rig = assemble(sources, stated.file, standard_library())
    case = Subject(rig, program()).of(chosen(rig, CaseKind.REST)[0])
    record, _ = case.run("inverse_static")
    since = int(np.argmax(record.columns["cycle_time"] > 0.02))
    assert record.columns["channel.p_S"][since:].min() > 130e5


def test_tables_and_data_agree(good: TrialResult) -> None:
    grid = report.overview(good)
    assert [row[:2] for row in grid.rows][:2] == [("inverse_static", "doubtful"), ("prediction *", "fit")]
    assert {len(row) for row in grid.rows} == {len(grid.head)}
    told = report.figures(good)
    assert told["strategies"]["prediction"]["verdict"] == "fit"
    worst = told["strategies"]["inverse_static"]["worst"]["flow"]
    assert worst["value"] == max(c["figures"].get("flow", 0.0) for c in told["strategies"]["inverse_static"]["cases"])


# --- a load that is not held ------------------------------------------------------------------------------------------


def floating() -> Rig:
    """The counterbalanced circuit, its valve with a floating centre, on one servo valve that drives the rod side.

    At joystick 0 the virtual rod side is open to the tank, and the counterbalance valve blocks the load side. The one
    spool that drains the rod side connects the load side with the supply, or with the tank.
    """
    base = lowering({"circuit": {"components": {"main_valve": {"centre": "float", "openings": None}}}})
    drive = merged(
        read_toml(CONFIG / "circuits" / "drive.toml"),
        {
            "fluid": base.sources["devices"]["rig"]["drive"]["fluid"],
            "components": {"servo_valve": {**VALVE, "leakage": None}},
        },
    )
    rig = copy.deepcopy(dict(base.sources["rig"]))
    rig["valves"] = {"main": {**rig["valves"]["A"], "port": "B", "other_port": "A"}}
    rig["devices"]["rig"]["actuators"] = {"valve_A": {"to": "u", "raw": [-10, 10], "delay": "1 ms"}}
    device = {"machine": base.sources["devices"]["rig"]["machine"], "drive": drive}
    return assemble({**base.sources, "rig": rig, "devices": {"rig": device}}, base.file, standard_library())


def test_one_valve_on_a_counterbalanced_circuit_does_not_hold_the_load() -> None:
    rig = floating()
    (found,) = run(rig, ["feedback"], chosen(rig, CaseKind.REST)).values()
    assert found.verdict is Suitability.UNFIT
    assert report.sentence(found).startswith("feedback: unfit. ")
    assert "Drift" in report.sentence(found)
    assert "mm off), unfit above 2 %" in report.sentence(found)
    with LockstepRun(replace(rig, cycle=None), trace=True) as alone:  # the judge: the rig by itself, at joystick 0
        alone.start()
        alone.run(2000)
        names = alone.plants["rig"].values
        x = alone.true_values("rig")
    place = Subject(rig, program()).of(chosen(rig, CaseKind.REST)[0]).comparison.plant.names.index("rod.x")
    assert len(names) == x.shape[1]
    assert abs(x[-1, place] - x[0, place]) > 0.02


def test_two_valves_hold_it() -> None:
    rig = lowering()
    (found,) = run(rig, ["feedback"], chosen(rig, CaseKind.REST)).values()
    assert found.verdict is Suitability.FIT
    assert found.cases[0].figures.judged["drift"] < 1e-4


def test_a_circuit_that_does_not_hold_its_load_does_not_count_against_the_bridge() -> None:
    """At 1.5 times its load the counterbalance valve opens by itself: 1.5 * 92 bar > 120 bar."""
    rig = lowering()
    (found,) = run(rig, ["feedback"], chosen(rig, CaseKind.REST, load=1.5)).values()
    assert not found.cases[0].judged
    assert "port B cavitates in the reference simulation" in found.cases[0].exclusion


def test_a_supply_beyond_the_range_of_its_sensor_is_named() -> None:
    """210 bar, measured up to 160 bar: the bridge takes the flow of its valves as 18 % smaller than it is."""
    ends = {"value": ["0 bar", "160 bar"]}
    rig = {"channels": {"p_S": {"scale": ends}}, "devices": {"rig": {"sensors": {"p_S": ends}}}}
    notes = commission(lift({"rig": rig, "cycle": {"length": "1 s"}}), ["inverse_static"], seconds=1.0).notes
    assert any(note.startswith("Channel p_S is at an end of its range, 0 bar … 160 bar, in case") for note in notes)


def test_a_heavier_load_is_carried_when_a_case_starts() -> None:
    """2.5 t on enclosed oil, 10 bar at B: with half as much again, the piston sank, and B cavitated."""
    held = 2500 * 9.81 / (np.pi / 4 * 0.05**2) + 10e5 * (1 - 0.6**2)
    nodes = {"A": {"pressure": f"{held} Pa"}, "B": {"pressure": "10 bar"}}
    machine = {"components": {"load": {"mass": "2490 kg"}}, "nodes": nodes}
    circuit = {"components": {"main_valve": {"leakage": None}}}
    rig = lift({"circuit": circuit, "devices": {"rig": {"machine": machine}}})
    (case,) = chosen(rig, CaseKind.REST, load=1.5)
    start = Subject(rig, program()).of(case).start
    assert start["B.content"] == pytest.approx(10e5, abs=1e5)
    assert start["A.content"] == pytest.approx(held + 1250 * 9.81 / (np.pi / 4 * 0.05**2), rel=0.01)
    (found,) = run(rig, ["feedback"], [case]).values()
    assert found.cases[0].exclusion == ""


def test_the_speed_of_a_motor_is_as_far_off_as_its_valves() -> None:
    """Both pass 15 % less than the rig file states. The judge is the shaft of the machine in the middle of the step."""
    rig = load_rig(CONFIG / "rigs" / "conveyor.toml")
    sources = copy.deepcopy(dict(rig.sources))
    for name in ("valve_A", "valve_B"):
        sources["devices"]["rig"]["drive"]["components"][name]["nominal_flow"]["flow"] = "51 l/min"  # of 60
    weak = assemble(sources, rig.file, rig.library)
    steps = [c for c in cases(rig, stroke=False, loads=(1.0,)) if c.kind is CaseKind.STEP]
    (case,) = (c for c in steps if c.moves == "joystick to 0.5" and c.flow == 1.0)
    right, wrong = (run(each, ["prediction"], [case])["prediction"].cases[0] for each in (rig, weak))
    assert right.figures.judged["speed"] < 0.02
    assert right.figures.moved is None
    speeds = []
    for each in (rig, weak):
        run_of_case = Subject(each, program()).of(case)
        record, true = run_of_case.run("prediction")
        shaft = true[:, list(run_of_case.comparison.plant.names).index("shaft.w")]
        speeds.append(float(np.max(np.abs(shaft[record.columns["cycle_time"] < 0.8]))))
    lost = 1.0 - speeds[1] / speeds[0]
    assert lost > 0.05
    assert wrong.figures.judged["speed"] == pytest.approx(lost, rel=0.5)


# --- real devices -----------------------------------------------------------------------------------------------------


def test_behind_a_slow_device_feedback_is_unfit() -> None:
    """20 Hz: the bench with the true machine oscillates too (tests/tick/test_slow_devices.py); 1 kHz is fit."""
    slow, fast = slow_lift(20.0, "feedback", SUPPLY), slow_lift(1000.0, "feedback", SUPPLY)
    late = run(slow, ["inverse_lag", "feedback"], chosen(slow, CaseKind.REST))
    assert list(late) == ["inverse_lag", "feedback"]
    assert late["feedback"].verdict is Suitability.UNFIT
    assert "unfit above" in report.sentence(late["feedback"])
    assert late["inverse_lag"].verdict is Suitability.FIT
    (kept,) = run(fast, ["feedback"], chosen(fast, CaseKind.REST)).values()
    assert kept.verdict is Suitability.FIT


@pytest.mark.parametrize("load", [0.5, 1.0, 1.5])
def test_the_load_of_a_stand_in_is_held_by_oil_under_pressure(load: float) -> None:
    """Behind a valve without leakage. It began without pressure: the piston sank, and no rest could be judged."""
    circuit = {"circuit": {"components": {"main_valve": {"leakage": None}}}}
    rig = slow_lift(1000.0, "feedback", merged(SUPPLY, circuit))
    (case,) = chosen(rig, CaseKind.REST, load=load)
    subject = Subject(rig, program())
    start, cylinder = subject.of(case).start, rig.settings.cylinders["lift"]
    area_A, area_B = cylinder.areas()
    force = area_A * start["A.content"] - area_B * start["B.content"]
    assert force == pytest.approx(load * cylinder.mass * 9.81, rel=0.01)
    assert start["B.content"] == pytest.approx(50e5, rel=0.01)
    (found,) = run(rig, ["feedback"], [case]).values()
    assert found.cases[0].exclusion == ""


def test_the_bridge_of_the_stand_in_is_told_of_no_restriction() -> None:
    """Which the stand-in does not have."""
    cylinder = {"bore": "50 mm", "restriction_A": {"flow": "20 l/min", "drop": "5 bar"}, "line_volume_B": "0.1 l"}
    assert unrestricted({"name": "lab", "cylinders": {"lift": cylinder}}) == {
        "name": "lab",
        "cylinders": {"lift": {"bore": "50 mm"}},
    }
    assert unrestricted({"name": "lab"}) == {"name": "lab"}
    point = {"flow": "20 l/min", "drop": "5 bar"}
    rig = slow_lift(1000.0, "feedback", merged(SUPPLY, {"rig": {"cylinders": {"lift": {"restriction_A": point}}}}))
    subject = Subject(rig, program())
    bridged = subject.of(chosen(rig, CaseKind.REST)[0]).comparison.rig
    assert rig.plan.cylinder[0].root_A > 0.0
    assert bridged.plan.cylinder[0].root_A == 0.0
    assert any("are left out" in note for note in subject.notes)


def test_the_sensors_of_the_stand_in_show_its_machine() -> None:
    """Scales, noise and places of the channels: what the loop measures is what the machine has."""
    rig = slow_lift(1000.0, "feedback", SUPPLY)
    case = Subject(rig, program()).of(chosen(rig, CaseKind.STEP)[0])
    record, true = case.run("feedback")
    names = list(case.comparison.plant.names)
    for channel, value, tolerance in (("p_A", "A.p", 1.5e6), ("p_B", "B.p", 1.5e6), ("x", "rod of lift.x", 3e-3)):
        measured = record.columns[f"channel.{channel}"]
        assert np.ptp(measured) > 10.0 * tolerance or channel != "x"
        assert measured[10:] == pytest.approx(true[8:-2, names.index(value)], abs=tolerance)
    assert record.columns["channel.p_S"][-1] == pytest.approx(210e5, rel=1e-3)


def test_a_valve_that_is_wired_the_other_way_round_moves_the_machine_the_same_way() -> None:
    turned: dict[str, Any] = {"rig": {"valves": {name: {"polarity": -1} for name in ("A", "B")}}}
    results = []
    for changes in (SUPPLY, merged(SUPPLY, turned)):
        rig = slow_lift(1000.0, "inverse_lag", changes)
        case = Subject(rig, program()).of(chosen(rig, CaseKind.STEP)[0])
        results.append(case.run("inverse_lag")[1])
    assert results[1] == pytest.approx(results[0], rel=1e-9, abs=1e-9)
    assert np.ptp(results[0][:, list(case.comparison.plant.names).index("rod of lift.x")]) > 0.05


def test_the_stand_in_has_the_flow_signal_curve_of_a_valve() -> None:
    """The bridge, which knows the curve, moves the machine as with linear valves; else it would be 60 mm off."""
    curve = [[0.0, "0 l/min"], [0.4, "10 l/min"], [1.0, "60 l/min"]]
    places = []
    for changes in (SUPPLY, merged(SUPPLY, of_valves(flow_signal=curve))):
        rig = slow_lift(1000.0, "prediction", changes)
        case = Subject(rig, program()).of(chosen(rig, CaseKind.STEP)[0])
        true = case.run("prediction")[1]
        places.append(true[:, list(case.comparison.plant.names).index("rod of lift.x")])
    assert np.ptp(places[0]) > 0.05
    assert places[1] == pytest.approx(places[0], abs=1e-3)


def test_the_load_of_the_stand_in_is_the_weight_or_the_stated_force() -> None:
    assert _acceleration({}, 1.0) == pytest.approx(-9.81, rel=0.01)
    assert _acceleration({}, 0.5) == pytest.approx(-9.81, rel=0.01)
    assert _acceleration({"loads": {"lift": "-1 kN"}}, 1.0) == pytest.approx(1e3 / 400.0, rel=0.01)
    assert _acceleration({}, PULLING) == pytest.approx(9.81, rel=0.01)


def test_a_load_that_is_not_stated_also_pulls() -> None:
    """A real supply of 80 bar is too low to retract against it as fast as the virtual one does."""
    low: dict[str, Any] = {"rig": {"simulation": {"supply_pressure": "80 bar"}}}
    unstated = slow_lift(1000.0, "prediction", merged(SUPPLY, low))
    stated = slow_lift(
        1000.0, "prediction", merged(SUPPLY, merged(low, {"rig": {"simulation": {"loads": {"lift": "3924 N"}}}}))
    )
    assert Subject(stated, program()).loads == (1.0, 0.5, 1.5)
    subject = Subject(unstated, program())
    assert subject.loads == (1.0, 0.5, 1.5, PULLING)
    assert any("in the other direction" in note for note in subject.notes)
    (case,) = (c for c in cases(unstated, loads=subject.loads) if c.load == PULLING and "to -0.5" in c.moves)
    assert str(case).endswith("at 50% of the stroke, load in the other direction")
    start, cylinder = subject.of(case).start, unstated.settings.cylinders["lift"]
    area_A, area_B = cylinder.areas()
    assert area_B * start["B.content"] - area_A * start["A.content"] == pytest.approx(cylinder.mass * 9.81, rel=0.01)
    (found,) = run(unstated, ["prediction"], [case]).values()
    assert found.verdict is Suitability.UNFIT


def _acceleration(simulation: dict[str, Any], load: float) -> float:
    """Initial acceleration of the rod without pressures, m/s²."""
    rig = slow_lift(1000.0, "feedback", merged(SUPPLY, {"rig": {"simulation": simulation}}))
    comparison = Subject(rig, program()).of(replace(chosen(rig, CaseKind.REST)[0], load=load)).comparison
    substitute = stand_in(rig, load)
    plant, names = substitute.plant, list(comparison.plant.names)
    plant.values[names.index("rod of lift.x")] = 0.5
    program().move(plant, np.zeros(2), 1e-4)
    return float(plant.values[names.index("rod of lift.v")]) / 1e-4


@pytest.mark.parametrize(
    ("changes", "key", "remedy"),
    [
        ({}, "simulation.supply_pressure", 'such as "210 bar"'),
        ({"rig": {**SUPPLY["rig"], "cylinders": {"lift": None}}}, "cylinders", "describe the cylinders"),
        (
            {"rig": {"simulation": {"supply_pressure": "210 bar", "loads": {"lft": "1 kN"}}}},
            "loads.lft",
            "Did you mean lift",
        ),
    ],
)
def test_assumed_values_are_named_with_their_keys(changes: dict[str, Any], key: str, remedy: str) -> None:
    strategy = "inverse_lag" if "cylinders" in key else "feedback"
    with pytest.raises(ConfigurationError) as error:
        commission(slow_lift(1000.0, strategy, changes), [strategy])
    (problem,) = error.value.problems
    assert key in problem.key
    assert remedy in problem.message
    assert problem.file == str(FILE)


# --- before arming ----------------------------------------------------------------------------------------------------


def test_before_arming_an_unfit_strategy_is_refused_and_a_fit_one_is_not() -> None:
    slow = slow_lift(20.0, "feedback")
    (said,) = examined(Request(str(slow.file), slow.sources, ("feedback",), 210e5).rig(), ["feedback"]).refusals
    assert said.startswith("virtual commissioning: feedback: unfit. ")
    assert "Oscillation" in said
    assert examined(lift(), ["feedback", "manual"]) == examined(slow, ["manual"]) == Findings()


def test_before_arming_it_is_stated_why_nothing_could_be_examined(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without a supply pressure there is no machine to simulate."""
    rig = slow_lift(1000.0, "feedback")
    Request(str(rig.file), rig.sources, ("feedback",)).write(tmp_path / "request.json")
    answer(tmp_path / "request.json")
    said = json.loads(capfd.readouterr().out)
    assert said["ready"]
    assert said["refusals"] == said["doubts"] == []
    assert "simulation.supply_pressure: missing: state the pressure that p_S measures" in said["unexamined"]


def test_a_limit_of_an_absolute_pressure_ends_a_case_where_it_acts() -> None:
    """30 bar are 31 bar absolute: beyond a limit of 30.5 bar absolute."""
    for bound, is_judged in (("30.5 bar", False), ("33 bar", True)):
        p_A = {"absolute": True}
        limit = {"channel": "p_A", "max": bound, "action": "stop", "valves": {"A": 1}}
        rig = lift({"rig": {"channels": {"p_A": p_A}, "limits": {"top": limit}}})
        comparison = Subject(rig, program()).of(chosen(rig, CaseKind.STEP)[0]).comparison
        found = list(_limits(comparison, CaseKind.STEP, "p_A", np.full(3, 30.0e5)))
        assert any(broken.any() for _, broken in found) is not is_judged


def test_before_arming_an_inaccurate_strategy_is_reported_and_not_refused() -> None:
    """The valve passes a quarter less flow than is stated."""
    flow = {"flow": "80 l/min", "drop": "35 bar", "per": "edge"}
    found = examined(lift(of_valves(nominal_flow=flow)), ["prediction"])
    (said,) = found.doubts
    assert found.refusals == ()
    assert said.startswith("virtual commissioning: prediction: ")
    assert " Flow " in said
    assert "hilserver check --run" in said


def test_before_arming_the_work_cycle_runs_until_each_input_has_moved_both_ways() -> None:
    """And a second more; no longer than 10 000 ticks, or the cycle; at least as long as asked for."""
    point = [["0 s", 0.0], ["1 s", 0.6], ["2 s", 0.6], ["4.5 s", -0.5], ["6 s", 0.0], ["30 s", 0.0]]

    def seconds(points: list[Any], rate: str = "1 kHz", least: float = 2.0, **more: Any) -> float:
        joystick = {"points": points, **more}
        rig = lift({"rig": {"loop": {"rate": rate}}, "cycle": {"inputs": {"joystick": joystick}}})
        _, cycle = short_cases(rig, least)
        return to_si(cycle.cycle["length"], "s")

    assert seconds(point) == 5.5
    assert seconds([*point, ["40 s", -0.6]]) == 10.0
    assert seconds(point, "4 kHz") == 2.5
    assert seconds(point, "4 kHz", 3.0) == 3.0
    assert seconds([["0 s", 0.0], ["1 s", 0.6], ["1.5 s", 0.0]]) == 1.5
    slow_sines = {"frequencies": ["0.5 Hz"], "rest": "1 s", "amplitude": 0.3}
    assert seconds([["0 s", 0.0], ["3 s", 0.0]], sweep=slow_sines) == 3.0 + 1.0 + 2.0 + 1.0
    assert seconds(point[:-1], sweep=slow_sines) == 5.5


def test_before_arming_it_is_the_circuit_that_runs_now() -> None:
    rig, bad = lowering(), floating()
    (said,) = examined(bad, ["feedback"]).refusals
    assert "Drift" in said
    now = Request(str(bad.file), {**bad.sources, "circuit": rig.circuit.source}, ("feedback",))
    assert examined(now.rig(), now.strategies).refusals != (said,)


# --- command line -----------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one case at rest, at full tables and reports."""
    monkeypatch.setattr("hilserver.virtual_commissioning.trial.cases", lambda rig, *_, **__: chosen(rig, CaseKind.REST))


@pytest.mark.usefixtures("quick")
def test_exit_code_and_json(hilserver: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = hilserver("check", FILE, "--run", "--strategy", "feedback", "-o", tmp_path)
    assert said.code == 0
    assert "feedback (configured): fit. " in said.out
    assert (tmp_path / "lift-virtual-commissioning.html").exists()
    figures = json.loads(hilserver("check", FILE, "--run", "--strict", "--json", "--strategy", "feedback").out)
    assert figures["verdict"] == "fit"
    monkeypatch.setattr(StrategyResult, "verdict", Suitability.DOUBTFUL)
    assert hilserver("check", FILE, "--run", "--json", "--strategy", "feedback").code == 0
    strict = hilserver("check", FILE, "--run", "--strict", "--json", "--strategy", "feedback")
    assert (strict.code, json.loads(strict.out)["verdict"]) == (2, "doubtful")
    assert "virtual commissioning: feedback (configured): doubtful" in strict.err
    monkeypatch.setattr(StrategyResult, "verdict", Suitability.UNFIT)
    assert hilserver("check", FILE, "--run", "--json", "--strategy", "feedback").code == 2


def test_options_without_meaning_are_refused(hilserver: Command) -> None:
    assert "--json is for virtual commissioning: add --run" in hilserver("check", FILE, "--json").err
    circuit = CONFIG / "circuits" / "lowering.toml"
    assert "--run needs a rig file" in hilserver("check", circuit, "--run").err
