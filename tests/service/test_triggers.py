"""Triggers that commands arm: what is refused and why, what the recorder is told, and the state that is published."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from service_harness import rig_text

from hilserver.errors import ConfigurationError
from hilserver.protocol.commands import ArmTrigger, EndTrigger
from hilserver.realtime.reports import Orders
from hilserver.record.cuts import CutTrigger
from hilserver.rig.build import Rig, load_rig
from hilserver.service.triggers import MOST_TRIGGERS, TriggerTable

RATE = {"rate =": 'rate = "1 kHz"'}
CONFIGURED = '\n[recording.triggers.fault]\nmode = "FAULT"\n'


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    folder = tmp_path_factory.mktemp("triggers")
    (folder / "rig.toml").write_text(rig_text("triggers", folder, RATE) + CONFIGURED)
    return load_rig(folder / "rig.toml")


class Told(list[list[CutTrigger]]):
    """What a recorder was told."""


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def table(rig: Rig, told: Told) -> TriggerTable:
    return TriggerTable(rig, told.append)


def report(cut: CutTrigger, count: int, writing: bool = False, file: str = "") -> dict[str, dict[str, Any]]:
    return {cut.name: {"armed": cut.armed, "count": count, "writing": writing, "file": file}}


def test_a_trigger_is_armed_occurs_once_and_is_armed_again(rig: Rig, table: TriggerTable, told: Told) -> None:
    command = ArmTrigger(trigger="peak", when="p_A > 200 bar", hysteresis="5 bar", either=True, before="0.1 s")
    table.arm(command, rig.packed)
    fault, peak = told[-1]
    assert fault.name == "fault"
    assert (peak.column, peak.edge, peak.level, peak.hysteresis) == ("channel.p_A", "either", 2e7, 5e5)
    assert (peak.before, peak.after, peak.once) == (100, 2000, True)
    table.hear(report(peak, 1, writing=True))
    assert table.status()["peak"].state == "WRITING"
    table.hear(report(peak, 1, file="cuts/a.arrow"))
    status = table.status()["peak"]
    assert (status.state, status.count, status.file, status.once) == ("DONE", 1, "cuts/a.arrow", True)
    assert status.text == "p_A > 200 bar, either way"
    assert table.restart() == [fault], "a new recorder does not wait for it again"
    table.arm(command, rig.packed)
    table.hear(report(peak, 1, file="cuts/a.arrow"))  # a report from before
    assert table.status()["peak"].state == "ARMED"
    assert told[-1][1] != peak
    table.end(EndTrigger())
    assert told[-1] == [fault]
    assert [*table.status()] == ["fault"]


def test_occurrences_are_counted_across_recorders(rig: Rig, table: TriggerTable, told: Told) -> None:
    table.arm(ArmTrigger(trigger="swing", when="circuit.supply.p < 100 bar", repeat=True), rig.packed)
    swing = told[-1][-1]
    assert (swing.column, swing.edge) == ("circuit.supply.p", "falling")
    table.hear(report(swing, 3, writing=True))
    assert table.restart() == told[-1], "it goes on"
    table.hear(report(swing, 2))
    status = table.status()["swing"]
    assert (status.state, status.count, status.configured) == ("ARMED", 5, False)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"when": "p > 1 bar"}, 'when: "p" is not a channel'),
        ({"when": "circuit.nothing.p > 1 bar"}, 'when: "circuit.nothing.p" is not a channel'),
        ({"when": "p_A > 1 mm"}, "when: p_A is measured in Pa, not in m"),
        ({"when": "circuit.supply.p > 1 mm"}, "when: circuit.supply.p is measured in Pa, not in m"),
        ({"when": "p_A = 1 bar"}, "when: .* is not a condition"),
        ({"when": "p_A > 1 bar", "hysteresis": "1 mm"}, "hysteresis must be in the unit of the level"),
        ({"event": "switch", "before": "31 s"}, "before: "),
        ({"event": "switch", "after": "2 bar"}, "after: "),
        ({"event": "switch", "either": True}, "either is for when"),
        ({"trigger": "fault", "event": "switch"}, "trigger: fault is in the rig file"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, Any], problem: str, rig: Rig, table: TriggerTable, told: Told) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        table.arm(ArmTrigger(**{"trigger": "bad", **given}), rig.packed)
    assert told == []


def test_they_are_not_too_many_and_what_is_not_armed_cannot_be_ended(rig: Rig, table: TriggerTable) -> None:
    with pytest.raises(ConfigurationError, match='no trigger "a" is armed'):
        table.end(EndTrigger(trigger="a"))
    with pytest.raises(ConfigurationError, match="fault is in the rig file"):
        table.end(EndTrigger(trigger="fault"))
    for number in range(MOST_TRIGGERS):
        table.arm(ArmTrigger(trigger=f"t{number}", event="switch"), rig.packed)
    with pytest.raises(ConfigurationError, match="20 triggers are armed"):
        table.arm(ArmTrigger(trigger="more", event="switch"), rig.packed)
    table.arm(ArmTrigger(trigger="t0", event="limit"), rig.packed)


def test_a_run_that_is_not_recorded_has_no_triggers(tmp_path: Path) -> None:
    (tmp_path / "rig.toml").write_text(rig_text("triggers", tmp_path, {"[recording]": "[recording]\nenabled = false"}))
    rig = load_rig(tmp_path / "rig.toml")
    with pytest.raises(ConfigurationError, match="the run is not recorded"):
        TriggerTable(rig).arm(ArmTrigger(trigger="a", event="switch"), rig.packed)


def test_orders_arrive_in_pieces() -> None:
    read, write = os.pipe()
    orders = Orders(read)
    try:
        assert orders.new() == []
        line = json.dumps({"triggers": ["a"]}).encode() + b"\n"
        os.write(write, line + line[:7])
        assert orders.new() == [{"triggers": ["a"]}]
        os.write(write, line[7:])
        os.close(write)
        assert orders.new() == [{"triggers": ["a"]}]
        assert orders.new() == [], "the supervisor has ended"
    finally:
        os.close(read)
