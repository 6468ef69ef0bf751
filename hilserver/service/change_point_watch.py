"""Monitors the mechanisms of the running circuit for change points, after which rounding decides the motion."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hilserver.numerics.arrays import Floats
from hilserver.service.rig_stop import Execute, RigStop
from hilserver.service.running_circuit import Running, RunningCircuit
from hilserver.service.telemetry import TelemetryReader
from hilserver.service.troubles import TellOfSource
from hilserver.tick.codes import Mode
from hilserver.tick.row import header, headers

LOOK = 0.05
"""Seconds between two checks."""
FIRST_LOOKS = 8
"""Number of rows that each check examines first; then up to as many again around the lowest of them."""


@dataclass
class _Loops:
    """The loops of a mechanism: the columns of its states, its stiffness there, and the largest one so far."""

    name: str
    columns: list[int]
    stiffness: Callable[[Floats], float | None]
    largest: float
    was_near: bool = False


class ChangePointWatch:
    """Trips an armed or running rig whose virtual circuit has a mechanism at a change point, and reports it.

    ``running`` returns the running circuit; ``execute`` carries out a command.
    """

    def __init__(self, telemetry: TelemetryReader, running: Running, execute: Execute) -> None:
        self._telemetry = telemetry
        self._running = running
        self._stop = RigStop(telemetry, execute)
        self._version = -1
        self._loops: list[_Loops] = []
        self._cursor = telemetry.published
        self._has_told = False

    async def keep(self, tell: TellOfSource) -> None:
        """Monitor for as long as the run lasts; ``tell`` receives the problem, if any, and an event."""
        while True:
            await asyncio.sleep(LOOK)
            await self.look(tell)

    async def look(self, tell: TellOfSource) -> None:
        """Examine the rows since the last check."""
        running = self._running()
        if not running.circuit.mechanisms:
            self._cursor = self._telemetry.published
            return
        if running.version != self._version:
            self._version, self._loops = running.version, await asyncio.to_thread(self._loops_of, running)
            if self._has_told:
                tell(None, "the circuit has changed; its mechanisms are monitored from the start")
            self._has_told = False
        from hilserver.simulation.change_points import NEAR  # already loaded, in the thread

        rows = self._telemetry.since(self._cursor)
        self._cursor = self._telemetry.published
        rows = rows[headers(rows)["circuit_version"] == self._version]
        for loops in self._loops if len(rows) else ():
            row, share = _lowest(loops, rows)
            is_near = share < NEAR
            if is_near and not loops.was_near:
                await self._report(loops, rows[row], tell)
            loops.was_near = is_near

    def _loops_of(self, running: RunningCircuit) -> list[_Loops]:
        """The mechanisms with loops; the imports take a moment, and few circuits need them."""
        from hilserver.simulation.change_points import loop_stiffness
        from hilserver.simulation.packed_run import initial_values

        found, packed = [], running.packed
        first, initial = len(self._telemetry.rig.layout.names), initial_values(packed)
        for placed in running.circuit.mechanisms:
            names, stiffness = loop_stiffness(placed)
            places = [packed.values.index(f"{placed.name}.{name}") for name in names]
            if (at_start := stiffness(initial[places])) is not None:
                found.append(_Loops(placed.name, [first + place for place in places], stiffness, at_start))
        return found

    async def _report(self, loops: _Loops, row: Floats, tell: TellOfSource) -> None:
        text = (
            f"mechanism {loops.name} of the virtual circuit is at a change point: there a closed loop can continue in "
            "more than one way, and rounding decides which; from now on its motion is unreliable"
        )
        if header(row).mode in (Mode.ARMED, Mode.RUNNING):
            answer = await self._stop.trip(text)
            text += "; tripped" if answer.ok else f"; not tripped: {answer.reason}"
        self._has_told = True
        tell(text, f"{text} (tick {header(row).tick:.0f})")


def _lowest(loops: _Loops, rows: Floats) -> tuple[int, float]:
    """The row in which the loops are nearest to a change point, and how near (0: there)."""
    seen: dict[int, float] = {}

    def examine(places: list[int]) -> None:
        for k in places:
            if k not in seen and np.isfinite(rows[k][loops.columns]).all():
                seen[k] = loops.stiffness(rows[k][loops.columns]) or 0.0

    coarse = sorted({*np.linspace(0, len(rows) - 1, FIRST_LOOKS).astype(int).tolist()})
    examine(coarse)
    if not seen:
        return 0, 1.0
    at = coarse.index(min(seen, key=lambda k: seen[k]))
    first, last = coarse[max(at - 1, 0)], coarse[min(at + 1, len(coarse) - 1)]
    examine(sorted({*np.linspace(first, last, 2 * FIRST_LOOKS).astype(int).tolist()}))
    loops.largest = max(loops.largest, *seen.values())
    lowest = min(seen, key=lambda k: seen[k])
    return lowest, seen[lowest] / loops.largest
