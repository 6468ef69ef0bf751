"""The supervisor stops a rig itself: the reason is the stated cause of this fault, and of no other one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from hilserver.protocol.commands import Command
from hilserver.protocol.published import Answer
from hilserver.realtime.shared import LoopMemory
from hilserver.rig.build import load_rig
from hilserver.rig.plan import first_row
from hilserver.rig.rig import Rig
from hilserver.service.rig_stop import RigStop
from hilserver.service.telemetry import TelemetryReader
from hilserver.tick.codes import FaultCode, Mode
from hilserver.tick.row import header

DEMO = Path(__file__).parents[2] / "config" / "rigs" / "demo.toml"


class Loop:
    """Publishes rows as the loop does."""

    def __init__(self, rig: Rig, memory: LoopMemory) -> None:
        self.reader, self._ring = TelemetryReader(rig, memory), memory.ring
        self.row = first_row(rig.layout, rig.plan, rig.packed)

    def tick(self, mode: Mode, fault: FaultCode = FaultCode.NONE) -> None:
        now = header(self.row)
        now.tick += 1
        now.mode, now.fault = mode, fault
        self._ring.publish(self.row)

    def texts(self) -> list[str]:
        """The events since the last call."""
        return [event.text for event in self.reader.events(self.reader.read())]


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    rig = load_rig(DEMO)
    with LoopMemory.create(tmp_path / "segment", row_width=rig.layout.width, ring_rows=100, mailbox_slots=4) as memory:
        yield Loop(rig, memory)


def test_the_supervisors_reason_of_a_trip_ends_with_its_fault(loop: Loop) -> None:
    """Of the next trip, by the operator, it was still the stated cause. Rows from before the trip do not end it."""

    async def execute(command: Command) -> Answer:
        loop.tick(Mode.RUNNING)
        loop.tick(Mode.FAULT, FaultCode.OPERATOR)
        return command.answer(time=0.0)

    loop.tick(Mode.SAFE)
    loop.tick(Mode.ARMED)
    assert loop.texts() == ["ARMED"]
    assert "tripped" in asyncio.run(RigStop(loop.reader, execute).stop("trip", "not recorded: the disk is full"))
    assert loop.texts() == ["RUNNING", "FAULT: not recorded: the disk is full"]
    assert loop.reader.fault(loop.row) == "not recorded: the disk is full"
    loop.tick(Mode.SAFE)
    loop.tick(Mode.FAULT, FaultCode.OPERATOR)
    assert loop.texts() == ["SAFE", f"FAULT: {FaultCode.OPERATOR.text}"]


def test_a_refused_trip_leaves_no_reason(loop: Loop) -> None:
    async def refuse(command: Command) -> Answer:
        return command.answer(time=0.0, problems=["no such thing"])

    assert asyncio.run(RigStop(loop.reader, refuse).stop("trip", "not recorded")) == ""
    assert loop.reader.trip_reason == ""
