"""What differs from the rig file and is corrected by the fragment is told from what nothing explains.

The judge is a rig with orifices at the ports and air in the oil, of which its file says nothing: merged into the file,
the fragment leaves nothing to suspect.
"""

from __future__ import annotations

import tomllib
from types import SimpleNamespace
from typing import Any

import pytest
from lift_bench import both, lift

from hilserver.identify import suspicions as module
from hilserver.identify.estimate import Estimate
from hilserver.identify.evaluation import Evaluation
from hilserver.identify.excitation import Extent
from hilserver.identify.findings import IdentifiedValue
from hilserver.identify.identification import identify_valve
from hilserver.identify.influences import influence
from hilserver.identify.report import _suspicion_blocks, _suspicion_lines, fragment
from hilserver.identify.simulated_excitation import recorded_excitation
from hilserver.identify.suspicions import Suspicion
from hilserver.report.document import Grid

AIR, DROP = 0.005, 4.0
"""Free air; bar at a rod speed of 0.2 m/s."""
RESTRICTED: dict[str, Any] = {
    "devices": {
        "rig": {
            "machine": {
                "fluid": {"air_fraction": AIR},
                "components": {
                    **{
                        f"restriction_{side}": {
                            "type": "orifice",
                            "ports": {"A": side, "B": f"chamber_{side}"},
                            "nominal_flow": {"flow": f"{0.2 * area!r} m^3/s", "drop": f"{DROP} bar"},
                        }
                        for side, area in (("A", 1963.5e-6), ("B", 1256.6e-6))
                    },
                    **{f"line_{s}": {"type": "volume", "ports": {"P": s}, "volume": "0.1 l"} for s in "AB"},
                    "cylinder": {
                        "ports": {"A": "chamber_A", "B": "chamber_B"},
                        "dead_volume_A": "0.3 l",
                        "dead_volume_B": "0.3 l",
                    },
                },
            }
        }
    },
    "rig": {"devices": {"rig": {"sensors": {name: {"noise": 1e-4} for name in ("p_A", "p_B", "p_S", "p_T", "x")}}}},
}


@pytest.mark.slow
def test_what_the_fragment_corrects_is_no_longer_suspected_when_it_is_merged() -> None:
    rig = lift(RESTRICTED)
    recording = recorded_excitation(rig, ["A"], Extent(30.0, 0.6, end_stops=False))
    evaluation = Evaluation([identify_valve(rig, recording, "A")], recording)
    (valve,) = evaluation.valves
    found = {each.key: each for each in evaluation.corrected(valve)}
    assert {"cylinders.lift.restriction_A", "cylinders.lift.air_fraction"} <= found.keys()
    assert float(found["cylinders.lift.restriction_A"].figure.split()[0]) == pytest.approx(DROP, rel=0.03)
    assert evaluation.suspected(valve) == []
    text = fragment(evaluation)
    assert "# suspected" not in text
    assert "# corrected by cylinders.lift.air_fraction: free air in the oil at port A: " in text

    merged = lift(both(RESTRICTED, {"rig": tomllib.loads(text)}))
    again = Evaluation([identify_valve(merged, recording, "A")], recording)
    assert [each.structure for each in again.valves[0].suspicions] == []


def test_a_negative_restriction_is_not_suspected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor negative air: there are none, and the fit makes up for something else with them."""
    chamber = SimpleNamespace(port="B", stated_transition=None, at_B=True, actuator=None)
    names = ("restriction B", "air B", "zero p_B")
    channels = {"p_B": SimpleNamespace(unit="Pa")}
    for name in ("_slower", "_not_proportional", "_correlated"):
        monkeypatch.setattr(module, name, lambda _: ())
    monkeypatch.setattr(module, "_key", lambda *_: "")

    def suspected(sign: float) -> list[str]:
        found: Any = SimpleNamespace(
            second_order=True,
            fit=SimpleNamespace(values=dict.fromkeys(names, 0.0)),
            experiment=SimpleNamespace(
                parameters=lambda _: dict.fromkeys(names, influence(0.1)),
                chambers=[chamber],
                rig=SimpleNamespace(settings=SimpleNamespace(channels=channels)),
            ),
            estimate=lambda _: Estimate(sign, 0.1),
        )
        return [each.structure for each in module.suspicions(found)]

    assert len(suspected(1.0)) == len(names)
    assert suspected(-1.0) == ["zero of sensor p_B"]


def test_the_report_tells_corrected_from_suspected(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the keys of the fragment: not every structure has one, nor does every recording determine its value."""
    keys = ("cylinders.lift.restriction_A", "cylinders.lift.air_fraction", "")
    valve: Any = SimpleNamespace(name="A", suspicions=[Suspicion(f"s{k}", "1", "0", "e", keys[k]) for k in range(3)])
    values = [IdentifiedValue("", key, Estimate(4e5, 1e4), None) for key in ("restriction_A", "")]
    monkeypatch.setattr(Evaluation, "machine", {"cylinders.lift": values})
    no_recording: Any = None  # nothing here looks at it
    evaluation = Evaluation([], no_recording)

    def tables() -> dict[str, list[str]]:
        grids = [block for block in _suspicion_blocks(evaluation, valve) if isinstance(block, Grid)]
        return {grid.head[0]: [row[0] for row in grid.rows] for grid in grids}

    assert tables() == {"corrected by the fragment": ["s0"], "suspected": ["s1", "s2"]}
    assert _suspicion_lines(evaluation, valve) == [
        "# corrected by cylinders.lift.restriction_A: s0: 1",
        "# suspected: s1: 1 (expected: 0)",
        "# suspected: s2: 1 (expected: 0)",
    ]
    valve.suspicions = valve.suspicions[:1]
    assert tables() == {"corrected by the fragment": ["s0"]}
    assert "No model errors are suspected: the residuals do not follow the command." in _suspicion_blocks(
        evaluation, valve
    )
