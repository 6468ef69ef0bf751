"""Triggers that commands arm: what is refused and why, what the recorder is told, and the state that is published."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from service_harness import rig_text

from hilserver.errors import ConfigurationError
from hilserver.protocol.commands import ArmTrigger, EndTrigger
from hilserver.realtime.reports import Orders
from hilserver.record.cuts import CutTrigger
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.service.children import Child
from hilserver.service.recording import RecorderProcess
from hilserver.service.running_circuit import RunningCircuit
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


def report(cut: CutTrigger, count: int, **more: Any) -> dict[str, dict[str, Any]]:
    state = {"armed": cut.armed, "count": count, "writing": False, "file": "", "kept": count, "since": 0, "trouble": ""}
    return {cut.name: {**state, **more}}


def test_a_trigger_is_armed_occurs_once_and_is_armed_again(rig: Rig, table: TriggerTable, told: Told) -> None:
    command = ArmTrigger(trigger="peak", when="p_A > 200 bar", hysteresis="5 bar", either=True, before="0.1 s")
    table.arm(command, rig.packed)
    fault, peak = told[-1]
    assert fault.name == "fault"
    assert (peak.column, peak.edge, peak.level, peak.hysteresis) == ("channel.p_A", "either", 2e7, 5e5)
    assert (peak.before, peak.after, peak.once) == (100, 2000, True)
    table.hear(report(peak, 1, writing=True, kept=0))
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
    table.hear(report(swing, 4, writing=True, kept=3, since=700))
    fault, again = table.restart()
    assert (fault, again) == (told[-1][0], replace(swing, since=700)), "it goes on behind the last complete window"
    table.hear(report(again, 2))
    status = table.status()["swing"]
    assert (status.state, status.count, status.configured) == ("ARMED", 5, False)


def test_a_recorder_that_is_killed_repeats_no_single_trigger_and_loses_none(
    rig: Rig, table: TriggerTable, told: Told
) -> None:
    """It is given rows from before the arming, and those of a window that its predecessor has not completed."""
    table.arm(ArmTrigger(trigger="peak", when="p_A > 200 bar"), rig.packed, 1000)
    peak = told[-1][-1]
    assert peak.since == 1001
    assert table.restart()[-1] == peak
    table.hear(report(peak, 1, writing=True, kept=0, since=1001))
    assert table.restart()[-1] == peak, "its window was not complete"
    assert (table.status()["peak"].state, table.status()["peak"].count) == ("ARMED", 0)
    table.hear(report(peak, 1, file="cuts/a.arrow", since=1200))
    assert peak not in table.restart()
    table.arm(ArmTrigger(trigger="other", event="switch"), rig.packed)
    assert [cut.name for cut in told[-1]] == ["fault", "other"]


def test_a_trigger_that_has_no_more_windows_says_why(rig: Rig, table: TriggerTable, told: Told) -> None:
    table.arm(ArmTrigger(trigger="swing", event="limit", repeat=True), rig.packed)
    table.hear(report(told[-1][-1], 1000, trouble="it has 1000 recordings"))
    status = table.status()["swing"]
    assert (status.state, status.trouble) == ("DONE", "it has 1000 recordings")


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
        ({"event": "switch", "either": True}, "either can only be used together with when"),
        ({"trigger": "fault", "event": "switch"}, "trigger: fault is in the rig file"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, Any], problem: str, rig: Rig, table: TriggerTable, told: Told) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        table.arm(ArmTrigger(**{"trigger": "bad", **given}), rig.packed)
    assert told == []


def test_they_are_not_too_many_and_what_is_not_armed_cannot_be_ended(rig: Rig, table: TriggerTable, told: Told) -> None:
    """What is done makes room for others."""
    with pytest.raises(ConfigurationError, match='no trigger "a" is armed'):
        table.end(EndTrigger(trigger="a"))
    with pytest.raises(ConfigurationError, match="fault is in the rig file"):
        table.end(EndTrigger(trigger="fault"))
    for number in range(MOST_TRIGGERS):
        table.arm(ArmTrigger(trigger=f"t{number}", event="switch"), rig.packed)
    with pytest.raises(ConfigurationError, match="8 triggers are armed"):
        table.arm(ArmTrigger(trigger="more", event="switch"), rig.packed)
    table.arm(ArmTrigger(trigger="t0", event="limit"), rig.packed)
    second, third = told[-1][1:3]
    for cut in (third, second):
        table.hear(report(cut, 1, file="cuts/a.arrow"))
    for name in ("more", "t0"):
        table.arm(ArmTrigger(trigger=name, event="switch"), rig.packed)
    assert [*table.status()] == ["fault", *(f"t{number}" for number in range(2, MOST_TRIGGERS)), "more", "t0"]
    assert table.status()["t2"].state == "DONE"


def test_a_run_that_is_not_recorded_has_no_triggers(tmp_path: Path) -> None:
    (tmp_path / "rig.toml").write_text(rig_text("triggers", tmp_path, {"[recording]": "[recording]\nenabled = false"}))
    rig = load_rig(tmp_path / "rig.toml")
    with pytest.raises(ConfigurationError, match="the run is not recorded"):
        TriggerTable(rig).arm(ArmTrigger(trigger="a", event="switch"), rig.packed)


def test_a_trigger_that_is_armed_while_a_recorder_starts_reaches_it(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the new one was given on its command line is from before."""
    sent: list[list[str]] = []
    ring = SimpleNamespace(capacity=10, published=0, width=rig.layout.width, read=lambda *_: (0, 0, 0))
    memory = cast("Any", SimpleNamespace(ring=ring, segment=SimpleNamespace(path=tmp_path / "segment")))
    running = RunningCircuit(rig.circuit, rig.packed, 1, None)
    recording = RecorderProcess(rig, memory, tmp_path, "", lambda _: running, cast("Any", SimpleNamespace()))

    async def started(*arguments: str, **_: Any) -> Any:
        recording.triggers.arm(ArmTrigger(trigger="late", event="switch"), rig.packed)
        return SimpleNamespace(running=True, send=lambda triggers: sent.append([each["name"] for each in triggers]))

    monkeypatch.setattr(Child, "start", started)
    asyncio.run(recording.start())
    assert sent[-1:] == [["fault", "late"]]


def test_orders_of_nobody_end_no_recorder() -> None:
    read, write = os.pipe()
    os.close(write)
    os.close(read)
    assert Orders(read).new() == []


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
