"""Stops an armed or running rig when no operator does, with the reason in state and events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

from hilserver.protocol.commands import Command, Disarm, Trip
from hilserver.protocol.published import Answer
from hilserver.service.telemetry import TelemetryReader

Execute = Callable[[Command], Awaitable[Answer]]


class RigStop:
    """What the supervisor does itself. ``execute`` carries out a command."""

    def __init__(self, telemetry: TelemetryReader, execute: Execute) -> None:
        self._telemetry = telemetry
        self._execute = execute

    async def trip(self, reason: str) -> Answer:
        """Trip. The reason is shown as the cause of the fault until the fault is reset."""
        self._telemetry.trip_reason = reason  # before the trip: the fault may be reported before the answer arrives
        answer = await self._execute(Trip())
        if not answer.ok:
            self._telemetry.trip_reason = ""
        return answer

    async def stop(self, action: Literal["ramp", "trip"], reason: str) -> str:
        """Ramp to null, or trip. Returns what was done and how the rig starts again; empty if it was refused."""
        if action == "trip":
            answer, done = await self.trip(reason), "tripped; reset, arm and start again"
        else:
            answer, done = await self._execute(Disarm()), "ramped to null, SAFE; arm and start again"
        return done if answer.ok else ""
