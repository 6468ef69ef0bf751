"""What the service tells about the rows of the loop, and records of them, without a loop."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilserver.numerics.arrays import Floats
from hilserver.realtime.setup import swap_payload
from hilserver.realtime.shared import LoopMemory
from hilserver.record.format import RecordError, is_circuit
from hilserver.record.reader import LogReader
from hilserver.record.recorder import CIRCUIT_VERSION, LogRecorder
from hilserver.record.run import packed_record, run_header
from hilserver.record.writer import LogWriter
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.plan import first_row
from hilserver.rig.rig import Rig
from hilserver.service.telemetry import TelemetryReader
from hilserver.service.telemetry_samples import LONGEST_GAP
from hilserver.tick.codes import FIRST_LIMIT_FAULT, CommandKind, Mode
from hilserver.tick.program import no_command
from hilserver.tick.row import command_in, header


@pytest.fixture(scope="module")
def rig() -> Rig:
    return load_rig(Path(__file__).parents[2] / "config" / "rigs" / "demo.toml")


@pytest.fixture(scope="module")
def demo_with_key(rig: Rig) -> Rig:
    """The demo's rig with a channel more, the local enable."""
    sources = json.loads(json.dumps(rig.sources))
    sources["rig"]["channels"]["key"] = {"device": "rig", "source": "x", "scale": {"raw": [0, 10], "value": [0, 1]}}
    sources["rig"]["enable"] = {"channel": "key"}
    return assemble(sources, rig.file, rig.library)


def memory_for(rig: Rig, folder: Path) -> LoopMemory:
    return LoopMemory.create(folder / "segment", row_width=rig.layout.width, ring_rows=1000, mailbox_slots=4)


@pytest.fixture
def memory(rig: Rig, tmp_path: Path) -> Iterator[LoopMemory]:
    with memory_for(rig, tmp_path) as memory:
        yield memory


class Loop:
    """Publishes rows as the loop does, without one."""

    def __init__(self, rig: Rig, memory: LoopMemory) -> None:
        self.rig, self.memory = rig, memory
        self.row = first_row(rig.layout, rig.plan, rig.packed)
        self.row[rig.layout.names.index("channel.x")] = 0.25

    def tick(self, count: int = 1, missed: int = 0, **values: float) -> None:
        for _ in range(count):
            header(self.row).tick += missed + 1
            header(self.row).utc = 1.8e9 + header(self.row).tick * 1e-3
            header(self.row).missed, missed = missed, 0
            for name, value in values.items():
                self.rig.layout.values(self.row, name.replace("__", "."))[...] = value
            self.memory.ring.publish(self.row)

    def take(self, kind: int, first: float = 0.0, payload: bytes = b"") -> None:
        """The tick that takes a command."""
        record = no_command()
        order = command_in(record)
        order.kind, order.a = kind, first
        number = self.memory.mailbox.post(record, payload) + 1
        self.memory.mailbox.take()
        self.memory.mailbox.take()  # done with it
        values: dict[str, Any] = {"circuit_version": first} if kind == CommandKind.SWAP else {}
        self.tick(command=number, **values)

    def swap(self, version: int) -> None:
        packed = self.rig.packed
        about = {k: v for k, v in packed_record(packed, self.rig.circuit.source).items() if k not in ("index", "value")}
        carried = packed.carried_from(packed)
        self.take(CommandKind.SWAP, version, swap_payload(packed, carried, json.dumps(about).encode()))


# ---------------------------------------------------------------------------------------------------------------------
# telemetry


def test_telemetry_is_on_the_grid_with_null_for_what_is_missing_or_no_number(rig: Rig, memory: LoopMemory) -> None:
    loop, reader = Loop(rig, memory), TelemetryReader(rig, memory)
    loop.tick(25)
    loop.tick(missed=30)  # tick 40 is missing
    loop.tick(10, channel__p_A=np.nan)
    telemetry = reader.samples.batch(reader.read())
    assert telemetry is not None
    assert telemetry.channels["tick"] == (0, 20, None, 60)
    assert telemetry.channels["p_A"] == (0.0, 0.0, None, None)
    assert telemetry.channels["x"] == (0.25, 0.25, None, 0.25)
    assert (telemetry.t0, telemetry.dt) == (1.8e9, 0.02)
    loop.tick(19)
    telemetry = reader.samples.batch(reader.read())
    assert telemetry is not None
    assert telemetry.channels["tick"] == (80,)
    loop.tick(5)
    assert reader.samples.batch(reader.read()) is None


def test_a_long_pause_makes_no_long_telemetry(rig: Rig, memory: LoopMemory) -> None:
    loop, reader = Loop(rig, memory), TelemetryReader(rig, memory)
    loop.tick(5)
    loop.tick(missed=20 * (LONGEST_GAP + 1))
    loop.tick(40)
    telemetry = reader.samples.batch(reader.read())
    assert telemetry is not None
    assert len(telemetry.channels["tick"]) == 2


def test_samples_of_another_circuit_keep_the_names_they_share(rig: Rig, memory: LoopMemory) -> None:
    source = {**rig.circuit.source, "components": {**rig.circuit.source["components"]}}
    source["components"]["line"] = {"type": "volume", "ports": {"P": "supply"}, "volume": "3 l"}
    source["components"]["pump"] = {
        "type": "fixed_pump",
        "ports": {"P": "supply", "T": "tank"},
        "displacement": "40 cm^3/rev",
        "speed": "1450 rpm",
    }
    packed = rig.pack(rig.read_circuit(source))
    start = len(rig.layout.names)
    loop, reader = Loop(rig, memory), TelemetryReader(rig, memory)
    reader.samples.expect(2, packed)
    loop.row[start + rig.packed.names.index("supply.p")] = 1e7
    loop.tick(30)
    loop.row[start:] = 0.0
    loop.row[start + packed.names.index("supply.p")] = 2e7
    loop.row[start + packed.names.index("pump.q_P")] = 1e-3
    loop.tick(20, circuit_version=2.0)
    telemetry = reader.samples.batch(reader.read())
    assert telemetry is not None
    assert telemetry.channels["circuit.supply.p"] == (1e7, 1e7, 2e7)
    assert telemetry.channels["circuit.pump.q_P"][2] == 1e-3
    assert "circuit.pump.Q" not in telemetry.channels


def test_an_invalid_reading_is_reported_with_its_reason(memory: LoopMemory) -> None:
    demo = load_rig(Path(__file__).parents[2] / "config" / "rigs" / "demo.toml")
    channels = {**demo.settings.channels, "p_S": demo.settings.channels["p_S"].model_copy(update={"valid_raw": (1, 9)})}
    rig = dataclasses.replace(demo, settings=demo.settings.model_copy(update={"channels": channels}))
    loop, reader = Loop(rig, memory), TelemetryReader(rig, memory)
    plan = rig.plan
    loop.row[plan.layout[0].age : plan.layout[0].errors] = loop.row[plan.layout[0].stale : plan.layout[0].change] = 0.0
    loop.tick(raw__p_S=5.0)
    assert list(reader.warnings(reader.read()[-1])) == []
    loop.tick(raw__p_S=0.5, stale__p_S=1e-3, raw__p_A=np.nan, stale__p_A=1e-3, raw__x=5.0, stale__x=1e-3)
    assert list(reader.warnings(reader.read()[-1])) == [
        "channel p_A: the device has no sample",
        "channel p_S: raw 0.5 is outside 1 … 9",
        "channel x: it changes faster than valid_rate",
    ]
    loop.tick(raw__p_S=5.0, raw__p_A=5.0, stale__p_S=4e-4, stale__p_A=0.0, stale__x=4e-4)  # the jitter of a slow device
    assert list(reader.warnings(reader.read()[-1])) == []


def test_a_limit_of_a_channel_without_a_sample_is_not_called_violated(rig: Rig, memory: LoopMemory) -> None:
    """Nobody knows the position; that its samples are missing is an age limit."""
    loop, reader = Loop(rig, memory), TelemetryReader(rig, memory)
    loop.tick(limit__stroke=0.0)
    assert reader.events(reader.read()) == []
    loop.tick(limit__stroke=1.0, limit__x__age=1.0, stale__x=np.inf, raw__x=np.nan)
    rows = reader.read()
    unchecked, found = "limit stroke can't be checked: channel x has no valid sample", list(reader.warnings(rows[-1]))
    assert unchecked in found
    assert unchecked in [event.text for event in reader.events(rows)]
    assert "limit stroke is violated" not in found
    assert "limit x.age is violated" in found
    loop.tick(stale__x=0.0)
    assert "limit stroke is violated" in list(reader.warnings(reader.read()[-1]))


def test_events_name_what_happened_in_order(rig: Rig, memory: LoopMemory) -> None:
    loop, reader = Loop(rig, memory), TelemetryReader(rig, memory)
    loop.tick(3, mode=Mode.SAFE, stale__x=0.0)
    assert reader.events(reader.read()) == []
    loop.tick(mode=Mode.ARMED)
    loop.tick(mode=Mode.RUNNING)
    for violated in (1.0, 0.0, 1.0, 1.0, 0.0):
        loop.tick(limit__stroke=violated)
    loop.swap(2)
    loop.tick(missed=4)
    loop.tick(missed=1)
    loop.tick(mode=Mode.FAULT, fault=FIRST_LIMIT_FAULT + rig.layout.limits.index("p_A_high"))
    events = reader.events(reader.read())
    assert [(event.kind, event.text, event.tick) for event in events] == [
        ("info", "ARMED", 3),
        ("info", "RUNNING", 4),
        ("warning", "limit stroke is violated", 5),
        ("switch", "version 2 of the circuit is active", 10),
        ("warning", "5 ticks missed and compensated", 15),
        ("fault", "FAULT: limit p_A_high was violated (action trip)", 18),
    ]
    assert events[5].details == {"mode": "FAULT", "ended": "limit p_A_high"}
    assert events[2].details == {"ticks": [5, 7]}
    assert events[4].details == {"ticks": [15, 17]}
    assert reader.missed == 5
    assert reader.events(reader.read()) == []


@pytest.mark.parametrize(("violated", "told"), [(1.0, "ARMED: limit stroke"), (0.0, "ARMED")])
def test_the_limit_that_ends_the_run_without_a_trip_is_named(
    violated: float, told: str, rig: Rig, tmp_path: Path
) -> None:
    sources = json.loads(json.dumps(rig.sources))
    sources["rig"]["limits"]["stroke"]["action"] = "ramp"
    rig = assemble(sources, rig.file, rig.library)
    with memory_for(rig, tmp_path) as memory:
        loop, reader = Loop(rig, memory), TelemetryReader(rig, memory)
        for mode in (Mode.SAFE, Mode.ARMED, Mode.RUNNING):
            loop.tick(mode=mode)
        reader.events(reader.read())
        loop.tick(mode=Mode.ARMED, limit__stroke=violated)
        event = reader.events(reader.read())[0]
        assert (event.text, event.details.get("ended", "")) == (told, told.removeprefix("ARMED").removeprefix(": "))


def test_the_local_enable_is_reported_and_displayed(demo_with_key: Rig, tmp_path: Path) -> None:
    rig = demo_with_key
    with memory_for(rig, tmp_path) as memory:
        loop, reader = Loop(rig, memory), TelemetryReader(rig, memory)
        plan = rig.plan
        loop.row[plan.layout[0].stale : plan.layout[0].change] = 0.0
        loop.tick(channel__key=1.0)
        assert reader.events(reader.read()) == []
        assert reader.state(loop.row, 0).enabled is True
        loop.tick(channel__key=0.0)
        assert [(event.kind, event.text) for event in reader.events(reader.read())] == [
            ("warning", "the local enable is off")
        ]
        state = reader.state(loop.row, 0)
        assert state.enabled is False
        assert "the local enable is off: the rig can't be armed or started" in state.warnings
        for on in (1.0, 0.0, 1.0):  # a contact that bounces
            loop.tick(channel__key=on)
        assert [event.text for event in reader.events(reader.read())] == ["the local enable is on"]


def test_without_a_local_enable_it_is_not_mentioned(rig: Rig, memory: LoopMemory) -> None:
    loop, reader = Loop(rig, memory), TelemetryReader(rig, memory)
    loop.tick()
    state = reader.state(loop.row, 0)
    assert state.enabled is None
    assert not [text for text in state.warnings if "enable" in text]


# ---------------------------------------------------------------------------------------------------------------------
# recorder


def recorder(rig: Rig, memory: LoopMemory, path: Path, version: int = 1) -> LogRecorder:
    header = run_header(rig, "program", "real time")
    header = header.model_copy(update={"extra": {**header.extra, CIRCUIT_VERSION: version}})
    return LogRecorder(memory, LogWriter(path, header))


def logged(path: Path) -> tuple[Floats, list[tuple[int, Any]]]:
    table = LogReader(path).read_all()
    return table.columns["tick"], table.events


def test_commands_in_lost_rows_are_still_logged(rig: Rig, memory: LoopMemory, tmp_path: Path) -> None:
    loop, path = Loop(rig, memory), tmp_path / "log.arrow"
    log = recorder(rig, memory, path)
    loop.tick(10)
    log.step()
    loop.swap(2)
    loop.take(CommandKind.SET_INPUT)
    loop.tick(1500)
    log.step()
    log._writer.close()
    ticks, events = logged(path)
    row = int(np.flatnonzero(np.diff(ticks) > 1)[0]) + 1
    assert log.lost == ticks[row] - 10
    assert [event["kind"] for _, event in events] == ["command", "circuit", "command", "lost"]
    assert {number for number, _ in events} == {row}


def test_a_log_ends_where_a_switch_was_lost(rig: Rig, memory: LoopMemory, tmp_path: Path) -> None:
    loop = Loop(rig, memory)
    log = recorder(rig, memory, tmp_path / "log.arrow")
    loop.tick(10)
    log.step()
    loop.swap(2)
    for _ in range(5):  # the mailbox has 4 slots
        loop.take(CommandKind.SET_INPUT)
    loop.tick(1500)
    with pytest.raises(RecordError, match="a switch of the circuit was lost"):
        log.step()


def test_a_new_recorder_begins_with_the_circuit_of_its_header(rig: Rig, memory: LoopMemory, tmp_path: Path) -> None:
    loop, path = Loop(rig, memory), tmp_path / "log.arrow"
    loop.tick(10)
    loop.swap(2)
    loop.tick(10)
    loop.swap(3)
    log = recorder(rig, memory, path, 2)
    log.step()
    log._writer.close()
    ticks, events = logged(path)
    assert ticks.tolist() == list(range(10, 22))
    assert [row for row, event in events if is_circuit(event)] == [11]
    with pytest.raises(RecordError, match="started too late"):
        recorder(rig, memory, tmp_path / "late.arrow", 0).step()
