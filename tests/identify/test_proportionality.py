"""A valve whose flow is not proportional to its opening is suspected; the judge is a pair of valves on one command.

The simulated drive has a second valve beside each, on the same signal, whose overlap is as large as the opening at
which the gain of the pair changes. No model here knows such a valve.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pytest
from lift_bench import FILE, lift, of_valves
from rig_bench import merged

from hilserver.identify import flows
from hilserver.identify.evaluation import EvaluatedValve, Evaluation
from hilserver.identify.excitation import Extent
from hilserver.identify.experiment import Experiment
from hilserver.identify.findings import findings
from hilserver.identify.flows import SIGNIFICANT, USUAL, _Lines, _Means, largest_disproportion, measured_curve
from hilserver.identify.identification import Identified, identify_valve
from hilserver.identify.recorded import Recording
from hilserver.identify.report import LITTLE_KNOWN, fragment, little_known, notes, obsolete
from hilserver.identify.simulated_excitation import recorded_excitation
from hilserver.identify.suspicions import suspicions
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.merge import merged as merged_text
from hilserver.rig.rig import Rig

FLOW = 60.0
"""l/min at full opening, of the pair."""


def with_two_gains(rig: Rig, knee: float, share: float) -> Rig:
    """The valves pass this share of their full flow at the opening ``knee``, and the rest beyond it."""
    components = rig.sources["devices"]["rig"]["drive"]["components"]
    first = share / knee

    def part(name: str, of_flow: float, **more: Any) -> dict[str, Any]:
        nominal = {**components[name]["nominal_flow"], "flow": f"{FLOW * of_flow} l/min"}
        return {**components[name], "nominal_flow": nominal, **more}

    pairs = {name: part(name, first) for name in ("valve_A", "valve_B")}
    pairs |= {f"{name}_beyond": part(name, 1.0 - first, overlap=knee) for name in ("valve_A", "valve_B")}
    sources = merged(rig.sources, {"devices": {"rig": {"drive": {"components": pairs}}}})
    return assemble(sources, rig.file, rig.library)


def recorded_and_identified(rig: Rig, seconds: float = 20.0) -> tuple[Recording, Identified]:
    recording = recorded_excitation(rig, ["A"], Extent(seconds, 0.6, end_stops=False))
    return recording, identify_valve(rig, recording, "A", order=2)


def identified(rig: Rig) -> Identified:
    return recorded_and_identified(rig)[1]


def suspected(found: Identified) -> bool:
    return any("not proportional" in each.structure for each in suspicions(found))


def test_a_flow_in_proportion_to_the_opening_is_not_suspected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is wrong in other respects: the true flow is 7 % less, and there is no leakage in the model.

    If the mean flows were not as the model says, a curve would be suggested, unless it is another overlap.
    """
    stated = of_valves(nominal_flow={"flow": "64 l/min", "drop": "35 bar", "per": "edge"})
    recording, found = recorded_and_identified(lift(stated))
    worst = largest_disproportion(found.experiment, found.fitted)
    assert worst is not None
    assert abs(worst.mean) < 0.5 * USUAL + SIGNIFICANT * worst.deviation
    assert not suspected(found)
    monkeypatch.setattr(flows, "largest_disproportion", lambda *_: worst._replace(mean=1.0, deviation=0.0))
    overlapped, bent = [(0.03, 0.0), (1.0, 1e-3)], [(0.0, 0.0), (0.15, 4e-5), (1.0, 1e-3)]
    for curve, suggested in ((overlapped, []), (bent, bent)):
        monkeypatch.setattr(flows, "measured_curve", lambda _, curve=curve: curve)
        assert flows.suggested_curve(found.experiment, found.fitted) == suggested
        assert not suspected(found), "neither by settled flows alone"
    worst = worst._replace(mean=0.8 * USUAL, deviation=0.0)
    monkeypatch.setattr("hilserver.identify.suspicions.largest_disproportion", lambda *_: worst)
    assert suspected(found)
    text = fragment(Evaluation([found], recording))
    assert '# flow_signal = [[0, "0 l/min"], [0.15, "2.4 l/min"], [1, "60 l/min"]] # to try: ' in text
    assert "nominal_flow" in tomllib.loads(text)["valves"]["A"], "all values are merged: it is only possible"
    assert LITTLE_KNOWN not in text
    little = EvaluatedValve(replace(found, fit=found.fit.of(["C_PA", "null"])), recording)
    assert little_known(little) == [LITTLE_KNOWN]


def test_a_curve_has_no_more_bends_than_the_means_have_room_for() -> None:
    at = np.array([0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.14, 0.16])
    means = _Means(at, at**2, np.ones(8))
    full = _Lines.through(means, (0.05, 0.09, 0.13))
    assert full._with(means, full.bends) == full


@pytest.mark.slow
def test_two_gains_are_suspected() -> None:
    """The flows of the curve that is suggested are right to 1 % of the full flow, up to the largest opening."""
    recording, found = recorded_and_identified(with_two_gains(lift(of_valves(overlap=0.01)), 0.2, 0.1), 15.0)
    assert suspected(found)
    evaluation = Evaluation([found], recording)
    (curve,) = evaluation.suggested_curves.values()
    signal, flow = np.array(curve).T
    for opening in np.linspace(0.05, found.experiment.largest_opening(found.fitted), 10):
        true = FLOW * np.interp(opening, [0.0, 0.2, 1.0], [0.0, 0.1, 1.0])
        assert 6e4 * np.interp(opening, signal, flow) == pytest.approx(true, abs=0.01 * FLOW)
    assert "identify again" in " ".join(notes(evaluation.valves[0]))
    corrected = evaluation.corrected(evaluation.valves[0])
    assert [(each.key, "not proportional" in each.structure) for each in corrected] == [("valves.A.flow_signal", True)]
    text = FILE.read_text().replace("damping = 0.7\n", "damping = 0.7\noverlap = 0.01\n")
    changed = tomllib.loads(merged_text(text, fragment(evaluation), obsolete(evaluation), date(2026, 11, 29)))
    before, after = tomllib.loads(text)["valves"]["A"], changed["valves"]["A"]
    assert after.keys() ^ before.keys() == {"overlap", "flow_signal"}, "what depends on the curve is left alone"
    _, again = recorded_and_identified(
        with_two_gains(lift(of_valves(flow_signal=after["flow_signal"])), 0.2, 0.1), 15.0
    )
    assert not suspected(again)
    assert again.values["frequency"] == pytest.approx(80.0, rel=0.02)


@pytest.mark.slow
def test_with_its_flow_signal_curve_a_valve_of_two_gains_is_identified() -> None:
    """Which is stated 5 % too high here: the flow is found, and nothing is suspected."""
    curve = [[0.0, "0 l/min"], [0.2, "6 l/min"], [1.0, "60 l/min"]]
    stated = of_valves(flow_signal=curve, nominal_flow={"flow": "63 l/min", "drop": "35 bar", "per": "edge"})
    found = identified(with_two_gains(lift(stated), 0.2, 0.1))
    flow = next(each for each in findings(found) if each.key == "nominal_flow")
    assert flow.estimate.value * 6e4 == pytest.approx(FLOW, rel=0.005)
    assert found.values["frequency"] == pytest.approx(80.0, rel=0.01)
    assert not suspected(found)


def test_the_curve_of_a_valve_with_a_flow_sensor_is_measured_at_one_spool_for_both_ports() -> None:
    """The flow sensor and both chambers of the demo's rig, a sensor of the spool, noise and 16 bits.

    The judge has another spool and another table of openings: of its full flow, the curve is 1 % off at most.
    """
    two_gains = [[0.0, "0 l/min"], [0.4, "10 l/min"], [1.0, "60 l/min"]]
    demo = load_rig(FILE.with_name("demo.toml"))
    scale = {"raw": [-10, 10], "value": [-1, 1]}
    valve = {"type": "directional_valve_4_3", "flow_signal": two_gains}
    changes = {
        "devices": {"rig": {"drive": {"components": {"servo_valve": valve}}}},
        "rig": {
            "devices": {"rig": {"sensors": {"spool": {"of": "servo_valve.W", **scale, "bits": 16}}}},
            "channels": {"spool": {"device": "rig", "source": "spool", "scale": scale}},
            "valves": {"main": {"spool": "spool"}},
        },
    }
    rig = assemble(merged(demo.sources, changes), demo.file, demo.library)
    recording = recorded_excitation(rig, ["main"], Extent(30.0, 0.6, end_stops=False))
    signal, flow = np.array(measured_curve(Experiment(rig, recording, "main"))).T
    for opening in np.linspace(0.05, 0.5, 10):
        true = FLOW * np.interp(opening, [0.0, 0.4, 1.0], [0.0, 1.0 / 6.0, 1.0])
        assert 6e4 * np.interp(opening, signal, flow) == pytest.approx(true, abs=0.01 * FLOW)
