"""The check before arming: a short virtual commissioning of the running circuit, in a separate process.

It is repeated after each switch and after a change of strategy or supply pressure, but not while the rig is
RUNNING. ``arm`` waits for its result.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hilserver.numerics.arrays import Floats
from hilserver.protocol.commands import Arm
from hilserver.rig.rig import Rig
from hilserver.service.children import Child, ChildFailed
from hilserver.service.margin_monitor import LOOK, MIN_SUPPLY, is_other, supplies
from hilserver.service.running_circuit import Running
from hilserver.service.strategies import Present
from hilserver.service.telemetry import TelemetryReader
from hilserver.service.troubles import TellOfSource
from hilserver.tick.bridge.strategies import BRIDGING
from hilserver.tick.codes import Mode
from hilserver.tick.row import header
from hilserver.virtual_commissioning.request import Findings, Request

ANSWER_MARGIN = 0.5
"""s before its expiry at which ``arm`` is answered."""
LONGEST = 600.0
"""s after which the check is given up."""
STILL_EXAMINED = (
    "the virtual commissioning of this circuit is not finished: it takes a few seconds after the start, a switch or a "
    "change of strategy. Try again then."
)
UNEXAMINED = "nothing could be examined before arming, so nothing is refused"
INSTEAD = (
    "Remove the cause, or set arming.virtual_commissioning = false in the rig file; hilserver check --run examines "
    "more cases."
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Examined:
    """The subject of a check: a version of the circuit, the strategies, and the supply pressure of real devices, Pa.

    ``strategies``: of the valves; ``actuators``: theirs, by their names.
    """

    version: int
    strategies: tuple[str, ...]
    supply: float | None
    actuators: tuple[tuple[str, str], ...] = ()

    def still_holds(self, now: Examined) -> bool:
        """Whether a result holds for the present state."""
        before, after = ((each.version, each.strategies, each.actuators) for each in (self, now))
        return before == after and not is_other(self.supply, now.supply)


class ArmingCheck:
    """Maintains the reasons not to arm the rig, or to doubt its accuracy.

    ``folder``: for the requests; ``running`` returns the circuit.
    """

    def __init__(self, rig: Rig, telemetry: TelemetryReader, running: Running, folder: Path) -> None:
        self._rig = rig
        self._telemetry = telemetry
        self._running = running
        self._request = folder / "arming_check.json"
        self.finished = asyncio.Event()
        """The first check is finished, or there is none."""
        if not rig.settings.arming.virtual_commissioning:
            self.finished.set()
        self._done: tuple[Examined, Findings] | None = None

    def doubts(self) -> tuple[str, ...]:
        """Why the rig may be inaccurate with its circuit and strategies, as sentences: as last examined."""
        row, done = self._telemetry.latest(), self._done
        still = row is not None and done is not None and done[0].still_holds(self._present(row))
        return done[1].doubts if still and done is not None else ()

    async def refusals(self, arm: Arm) -> tuple[str, ...]:
        """Why the rig must not be armed, as sentences. Waits for a check that is not finished."""
        deadline = time.monotonic() + arm.patience
        while self._rig.settings.arming.virtual_commissioning:
            row, done = self._telemetry.latest(), self._done
            if row is not None and header(row).mode != Mode.SAFE:
                return ()  # the loop refuses it
            if row is not None and done is not None and done[0].still_holds(self._present(row)):
                return done[1].refusals
            if time.monotonic() > deadline or (arm.expires is not None and time.time() > arm.expires - ANSWER_MARGIN):
                return (STILL_EXAMINED,)
            await asyncio.sleep(0.05)
        return ()

    async def keep(self, tell: TellOfSource) -> None:
        """Repeat the check for as long as the run lasts; ``tell`` receives the problem, if there is one, and a text."""
        trouble: str | None = None
        while True:
            await asyncio.sleep(LOOK)
            row = self._telemetry.latest()
            if row is None or header(row).mode == Mode.RUNNING:
                continue
            now = self._present(row)
            if self._done is not None and self._done[0].still_holds(now):
                continue
            had_trouble = trouble
            found, trouble = await self._examine(now) if now.strategies or now.actuators else (Findings(), None)
            self._done = now, found
            self.finished.set()
            if trouble is not None:
                tell(trouble, trouble)
            elif had_trouble is not None:
                tell(None, "virtual commissioning: the circuit can be armed with this strategy")

    def _present(self, row: Floats) -> Examined:
        present = Present.of(self._rig, row)
        strategies = sorted({name for name in present.valves.values() if name in BRIDGING})
        supply = None
        if not any(device.is_simulated for device in self._rig.devices):
            known = [p for p in supplies(self._rig, row).values() if p is not None and p > MIN_SUPPLY]
            supply = min(known, default=None)
        return Examined(self._running().version, tuple(strategies), supply, tuple(present.actuators.items()))

    async def _examine(self, asked: Examined) -> tuple[Findings, str | None]:
        """Run the check in its process: the findings, and a message. If nothing is examined, nothing is refused."""
        sources = {**self._rig.sources, "circuit": self._running().circuit.source}
        request = Request(str(self._rig.file), sources, asked.strategies, asked.supply, dict(asked.actuators))
        request.write(self._request)
        child = await Child.start(
            "the check before arming", "hilserver.virtual_commissioning.before_arming", str(self._request)
        )
        try:
            async with asyncio.timeout(LONGEST):
                # shielded: the child can still answer while it is being ended
                answer: dict[str, Any] = await asyncio.shield(child.ready)
        except (ChildFailed, TimeoutError) as error:
            why = str(error) or f"no answer within {LONGEST:g} s"
            return _unexamined(f"the virtual commissioning before arming failed, so nothing is refused: {why}")
        finally:
            child.kill()
            await child.wait_ended()
        if why := answer["unexamined"]:
            return _unexamined(f"virtual commissioning: {UNEXAMINED}: {why}. {INSTEAD}")
        found = Findings(tuple(answer["refusals"]), tuple(answer["doubts"]))
        return found, f"arming is refused: {'; '.join(found.refusals)}" if found.refusals else None


def _unexamined(text: str) -> tuple[Findings, str]:
    """Nothing is refused, but the answer to ``arm`` says why."""
    _log.warning("%s", text)
    return Findings(doubts=(text,)), text
