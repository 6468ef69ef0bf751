"""The margin monitor: capacity and speed of the real valves for the running circuit, and delay margins of the bridge.

It calculates the margins at the start, after every switch, and after a change of the real supply pressure while nothing
is armed. It works in a thread that pauses for as long as it works, so that the event loop keeps responding; the
real-time loop is another process. The margins hold for all strategies; another strategy only selects other warnings.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite

from hilserver.circuit.program import Program
from hilserver.margins.actuators import ActuatorMargin
from hilserver.margins.capacity import Capacity, OpeningSpeed, flow_text
from hilserver.margins.delay import StrategyDelay
from hilserver.margins.margins import RigMargins, margins
from hilserver.numerics.arrays import Floats
from hilserver.protocol import published
from hilserver.rig.rig import Rig
from hilserver.service.running_circuit import Running, RunningCircuit
from hilserver.service.strategies import Present
from hilserver.service.telemetry import TelemetryReader
from hilserver.simulation.machine import real_pressures
from hilserver.tick.codes import Mode
from hilserver.tick.row import header

LOOK = 0.2
"""Seconds between two checks whether the margins are outdated."""
OTHER_SUPPLY, MIN_SUPPLY = 0.1, 5e5
"""Change of a supply pressure after which the margins are recalculated: as a fraction, and its minimum in Pa."""
PENDING = "the margins of the real valves are still being calculated: hilserver status will show them."

_log = logging.getLogger(__name__)


class Ended(Exception):
    """The server is ending: the calculation is abandoned."""


@dataclass(frozen=True)
class MarginResult:
    """The margins of a version of the circuit, or why there are none; with the real supply pressures, Pa."""

    version: int
    supply: Mapping[str, float | None]
    found: RigMargins | None
    failure: str = ""

    def warnings(self, present: Present) -> tuple[str, ...]:
        """Warnings with these strategies."""
        if self.found is None:
            return (self.failure,)
        found = self.found.with_laws(present.actuators)
        return tuple(found.warnings(dict.fromkeys(present.valves.values())))

    def refusals(self, rig: Rig, present: Present) -> tuple[str, ...]:
        """Why the rig must not be armed with these strategies."""
        if self.found is None:
            return ()
        found = self.found.with_laws(present.actuators)
        return tuple(found.refusals(rig, dict.fromkeys(present.valves.values())))


class MarginMonitor:
    """Keeps the margins of the running circuit up to date. ``running`` returns that circuit."""

    def __init__(self, rig: Rig, program: Program, telemetry: TelemetryReader, running: Running) -> None:
        self._rig = rig
        self._program = program
        self._telemetry = telemetry
        self._running = running
        self._done: MarginResult | None = None

    def warnings(self) -> tuple[str, ...]:
        """The warnings before arming, as sentences."""
        row, done = self._telemetry.latest(), self._done
        if row is None or done is None or done.version != self._running().version:
            return (PENDING,)
        return done.warnings(Present.of(self._rig, row))

    def refusals(self) -> tuple[str, ...]:
        """Why the rig must not be armed, as sentences; none while the margins are still being calculated."""
        row, done = self._telemetry.latest(), self._done
        if row is None or done is None or done.version != self._running().version:
            return ()
        return done.refusals(self._rig, Present.of(self._rig, row))

    async def keep(self, publish: Callable[[published.MarginStatus], None], tell: Callable[[str], None]) -> None:
        """Update the margins for as long as the run lasts; ``tell`` gets each new warning once."""
        reported: set[str] = set()
        shown: Present | None = None
        while True:
            await asyncio.sleep(LOOK)
            row = self._telemetry.latest()
            if row is None:
                continue
            if self._is_new(row):
                publish(published.MarginStatus(calculated=False, version=self._running().version))
                self._done, shown = await self._calculate(row), None
            strategies = Present.of(self._rig, row)
            if self._done is not None and strategies != shown:
                shown, status = strategies, status_of(self._done, strategies)
                publish(status)
                for text in status.warnings:
                    if text not in reported:
                        tell(text)
                reported = set(status.warnings)

    def _is_new(self, row: Floats) -> bool:
        done = self._done
        if done is None or done.version != self._running().version:
            return True
        now = supplies(self._rig, row)
        return header(row).mode == Mode.SAFE and any(is_other(done.supply[name], p) for name, p in now.items())

    async def _calculate(self, row: Floats) -> MarginResult:
        running, ended = self._running(), threading.Event()
        try:
            return await asyncio.to_thread(self._calculated, running, row, ended)
        finally:
            ended.set()

    def _calculated(self, running: RunningCircuit, row: Floats, ended: threading.Event) -> MarginResult:
        """Calculate the margins, in a thread that pauses half of the time."""
        rig = dataclasses.replace(self._rig, circuit=running.circuit, packed=running.packed)
        supply, resumed = supplies(rig, row), time.perf_counter()

        def pause() -> None:
            nonlocal resumed
            if ended.wait(time.perf_counter() - resumed):
                raise Ended
            resumed = time.perf_counter()

        try:
            return MarginResult(running.version, supply, margins(rig, self._program, row, pause))
        except Ended:
            raise
        except Exception as error:  # the run continues without margins
            _log.exception("the margins of the real valves could not be calculated; please report it")
            return MarginResult(running.version, supply, None, f"the margins could not be calculated: {error}")


def supplies(rig: Rig, row: Floats) -> dict[str, float | None]:
    """The present supply pressure of each real valve, Pa."""
    return {name: pair[0] if pair is not None else None for name, pair in real_pressures(rig, row).items()}


def is_other(before: float | None, now: float | None) -> bool:
    """Whether a supply pressure has changed so much that results calculated with it are outdated."""
    if before is None or now is None:
        return before is not now
    return abs(now - before) > max(OTHER_SUPPLY * abs(before), MIN_SUPPLY)


# --- as a message -----------------------------------------------------------------------------------------------------


def status_of(done: MarginResult, present: Present) -> published.MarginStatus:
    """The message with these margins, with the present strategies."""
    whole = published.MarginStatus(
        calculated=True,
        version=done.version,
        warnings=done.warnings(present),
        strategies={**present.valves, **present.actuators},
        supply=dict(done.supply),
        unknown=done.failure or None,
    )
    if done.found is None:
        return whole
    capacity, delay = done.found.capacity, done.found.delay
    return whole.model_copy(
        update={
            "capacity": tuple(map(_capacity, capacity.capacities)),
            "speed": tuple(map(_speed, capacity.speeds)),
            "rate": tuple(published.RateMargin(**dataclasses.asdict(each)) for each in capacity.frequencies),
            "delay": tuple(map(_delay, delay.margins)),
            "actuators": tuple(map(_actuator, done.found.with_laws(present.actuators).actuators)),
            "unknown": delay.missing or None,
        }
    )


def _capacity(found: Capacity) -> published.CapacityMargin:
    return published.CapacityMargin(
        valve=found.valve,
        direction=found.direction,
        needed=found.needed,
        real=found.real,
        same_drop=_finite(found.same_drop),
        margin=_finite(found.margin),
        at=flow_text(found.worst) if found.worst is not None else None,
    )


def _speed(found: OpeningSpeed) -> published.SpeedMargin:
    return published.SpeedMargin(
        valve=found.valve, required=found.requested, spool=found.spool, slew=found.slew, margin=_finite(found.margin)
    )


def _delay(found: StrategyDelay) -> published.DelayMargin:
    return published.DelayMargin(
        strategy=found.strategy,
        delay=found.delay,
        delay_with_tolerance=found.delay_off,
        critical=_finite(found.critical),
        frequency=found.frequency,
        margin=_finite(found.margin),
        at=str(found.where) if found.where is not None else None,
    )


def _actuator(found: ActuatorMargin) -> published.ActuatorDelayMargin:
    return published.ActuatorDelayMargin(
        actuator=found.name,
        strategy=found.strategy,
        remaining=found.remaining(found.strategy),
        critical=_finite(found.critical) if found.critical is not None else None,
        frequency=_finite(found.frequency),
        margin=_finite(found.margin(found.strategy)),
    )


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
