"""Virtual commissioning of actuators: verdicts, and the stand-in for a rig with real devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Command
from frame_bench import FRAME
from hybrid_rig import hybrid_rig, sources
from rig_bench import merged
from service_harness import CONFIG

from hilserver.circuit.library import standard_library
from hilserver.errors import HilserverError
from hilserver.hybrid.rig_runs import simulate
from hilserver.hybrid.stand_in import NAME, simulated
from hilserver.rig.build import assemble
from hilserver.rig.rig import Rig
from hilserver.virtual_commissioning.actuator_report import write_report
from hilserver.virtual_commissioning.actuators import cases, commission_actuators, examined_actuators, refusals, verdict
from hilserver.virtual_commissioning.criteria import Suitability

POINTS = [["0 s", 0], ["0.5 s", 1], ["1 s", -1], ["1.5 s", 0], ["3 s", 0]]
CYCLE: dict[str, Any] = {"inputs": {"push": {"points": POINTS}}}
QUIET = {"x": {"noise": "0.001 mm"}, "F": {"noise": "0.4 N"}}
"""The noise of the simulated sensors, stated."""


def with_cycle(changes: dict[str, Any] | None = None) -> Rig:
    """The oscillator with a work cycle."""
    return hybrid_rig(merged({"rig": {"cycle": "cycle.toml", "channels": QUIET}, "cycle": CYCLE}, changes or {}))


def real(changes: dict[str, Any] | None = None) -> Rig:
    """The same with a replayed device in place of the simulated one: nothing of it is known but the rig file.

    ``changes``: of the rig file.
    """
    device = {"driver": "replay", "file": "none.csv", "columns": ["x", "F"], "outputs": ["command"]}
    given = merged(sources(), {"rig": {"channels": QUIET, **(changes or {})}})
    given["rig"]["devices"]["lab"] = device
    given["rig"]["cycle"] = "cycle.toml"
    return assemble({**given, "cycle": CYCLE, "devices": {}}, Path("oscillator.toml"), standard_library())


def test_verdicts_depend_on_the_reference_simulation_not_on_each_other() -> None:
    """The force is late by a tick, the commands too, of which nobody knows: doubtful, unless delays are tracked."""
    (tracked,) = commission_actuators(with_cycle(), ["prediction"])
    assert tracked.verdict is Suitability.FIT
    held = with_cycle({"rig": {"actuators": {"table": {"bridge": {"learn": False}}}}})
    found = {each.strategy: each for each in commission_actuators(held, ["direct", "prediction"])}
    assert found["direct"].verdict is Suitability.UNFIT
    assert verdict(found["prediction"].runs["as described"]) is Suitability.FIT
    assert found["prediction"].verdict is Suitability.DOUBTFUL  # 2 ms late at 5 Hz
    assert refusals(list(found.values()), {"table": "prediction"}, strict=False) == []
    (text,) = refusals(list(found.values()), {"table": "direct"}, strict=False)
    assert text.startswith("virtual commissioning: ")


def test_a_rig_with_real_devices_is_tried_on_a_stand_in_with_its_uncertainty() -> None:
    rig = real()
    tried = dict(cases(rig))
    assert list(tried) == [
        "as described",
        "command and force a tick late",
        "uncertain values larger",
        "uncertain values smaller",
    ]
    assert all(each.devices[0].name == NAME for each in tried.values())
    stiff = {
        what: each.sources["devices"][NAME]["machine"]["components"]["table_spring"]["stiffness"]
        for what, each in tried.items()
    }
    assert stiff["uncertain values larger"] == "330000.0 N/m"  # 300 kN/m and two times 5 %
    assert stiff["uncertain values smaller"] == "270000.0 N/m"
    assert np.array_equal(tried["as described"].plan.design, tried["uncertain values larger"].plan.design)
    (found,) = commission_actuators(rig, ["prediction"])
    assert found.verdict is not Suitability.UNFIT


def test_the_stand_in_moves_as_the_simulated_rig_does() -> None:
    own, other = (simulate(rig, ["prediction"]).runs[0].actuators["table"] for rig in (with_cycle(), real()))
    assert other.off == pytest.approx(own.off, abs=0.005)
    assert np.ptp(other.displacement) == pytest.approx(np.ptp(own.displacement), rel=0.01)


def test_the_stand_in_has_a_load_cell_behind_the_mass_of_the_piston() -> None:
    """Its reading is the force of a stiff spring, without the inertia of the piston, whose mass the bridge knows."""
    rig = real({"actuators": {"table": {"servo": {"moving_mass": "15 kg"}}}})
    assert "table_cell" in simulated(rig).sources["devices"][NAME]["drive"]["components"]
    assert simulate(rig, ["prediction"]).runs[0].actuators["table"].off < 0.01


def test_before_arming_a_harmful_strategy_is_refused_and_a_movement_by_hand_is_not() -> None:
    rig = with_cycle()
    assert examined_actuators(rig, {"table": "prediction"}).refusals == ()
    (text,) = examined_actuators(rig, {"table": "direct"}).refusals
    assert "direct" in text
    assert "arming.virtual_commissioning" in text
    assert examined_actuators(rig, {"table": "manual"}).refusals == ()


def test_what_cannot_be_simulated_is_said() -> None:
    with pytest.raises(HilserverError, match="needs a work cycle"):
        commission_actuators(hybrid_rig())
    with pytest.raises(HilserverError, match=r'"pi_lead" is not a strategy of an actuator'):
        simulate(with_cycle(), ["pi_lead"])
    assert simulated(with_cycle()).devices[0].name == "lab"


def test_check_run_writes_a_report_with_every_case(hilserver: Command, tmp_path: Path) -> None:
    points = '[["0 s", 0], ["0.5 s", 1], ["1 s", -1], ["1.5 s", 0], ["2 s", 0]]'
    (tmp_path / "push.toml").write_text(f"inputs.ground_acceleration.points = {points}")
    text = FRAME.read_text().replace("../cycles/el_centro.toml", "push.toml").replace('"../', f'"{CONFIG}/')
    (tmp_path / "frame.toml").write_text(text)
    options = ("--run", "--strategy", "direct", "--strategy", "prediction", "-o", tmp_path / "out")
    said = hilserver("check", tmp_path / "frame.toml", *options)
    assert (said.code, said.err) == (0, "")
    stem = "frame-virtual-commissioning-actuators"
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == [f"{stem}-actuator-table.png", f"{stem}.html", f"{stem}.json", f"{stem}.md"]
    for name in written:
        assert f"Written: {tmp_path / 'out' / name}" in said.out
    report = (tmp_path / "out" / f"{stem}.md").read_text()
    for part in ("## As described", "## Command and force a tick late", "| prediction (configured) |", "floor_2"):
        assert part in report
    figures = json.loads((tmp_path / "out" / f"{stem}.json").read_text())["actuators"]
    assert list(figures) == ["direct", "prediction"]
    assert figures["prediction"]["cases"].keys() == {"as described", "command and force a tick late"}
    assert figures == json.loads(hilserver("check", tmp_path / "frame.toml", *options, "--json").out)["actuators"]


def test_a_report_without_any_complete_run(tmp_path: Path) -> None:
    rig = with_cycle({"rig": {"actuators": {"table": {"max_error": "0.01 mm"}}}})
    found = commission_actuators(rig, ["direct"])
    assert all(run.trip for run in found[0].runs.values())
    html, *_ = write_report(found, rig, tmp_path)
    assert "limit table.following" in html.read_text()
