"""A rig driven in real time for its log: through its work cycle, or by the excitation that identifies its valves."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

from hilserver.errors import HilserverError
from hilserver.identify.excitation import Extent, RunEnded, by_hand, excite, jog_renewal
from hilserver.identify.recorded import Recording, recording_of_log
from hilserver.numerics.arrays import Floats
from hilserver.protocol.commands import Arm, Command, Cycle, Disarm, Jog, SelectStrategy, Start, Stop
from hilserver.rig.rig import Rig
from hilserver.service.supervisor import ServerRun, Supervisor
from hilserver.service.telemetry import fault_reason
from hilserver.tick.codes import Mode
from hilserver.tick.row import header

LOOK = 0.05
"""s between two polls of the rig."""
LOOK_BY_HAND = 0.005
"""The same during an excitation."""
TIMEOUT = 5.0
"""s within which a command must be answered."""
PAUSE = 0.5
"""s between two passes, with the valves at null."""


async def record_passes(rig: Rig, strategies: Sequence[str | None], tell: Callable[[str], object]) -> Path:
    """Run a server of the rig, its work cycle once under each strategy, then stop the server; returns the log.

    None stands for the strategies of the rig file. ``tell`` gets a line per pass. Raises HilserverError if the
    server can't start, a command is refused, or the rig leaves RUNNING too early; the valves are at null then.
    """
    if rig.cycle is None:
        raise HilserverError(f"{rig.file}: there is no work cycle to run (cycle = …).")
    return await _served(rig, lambda run: _passes(run, strategies, tell), "its passes were complete")


async def record_by_hand(
    rig: Rig, valves: Sequence[str], extent: Extent, *, tell: Callable[[str], object] = lambda _: None
) -> Path:
    """Run a server of the rig and excite its valves, then stop the server; returns the log.

    ``tell`` gets what has ended the excitation when enough was recorded. Raises HilserverError if the server can't
    start, a command is refused, or the rig leaves RUNNING too early.
    """
    ended = threading.Event()

    async def move(run: ServerRun) -> None:
        await asyncio.sleep(PAUSE)
        await _do(run, Arm(), Start())
        bench = LiveBench(run, asyncio.get_running_loop(), ended)
        if early := await asyncio.to_thread(excite, rig, bench, list(valves), extent):
            tell(early)
        else:
            await _do(run, Stop(), Disarm())

    try:
        return await _served(by_hand(rig, extent.largest), move, "the sequence was complete")
    finally:
        ended.set()


class LiveBench:
    """A rig that a server of this process runs; used from a thread beside its event loop."""

    reaction = 0.05

    def __init__(self, run: ServerRun, loop: asyncio.AbstractEventLoop, ended: threading.Event) -> None:
        self._run, self._loop, self._ended = run, loop, ended
        self._renewed = jog_renewal(run.rig)
        self._columns = {name: run.rig.layout.column(f"channel.{name}") for name in run.rig.settings.channels}
        self._highest: dict[str, float] = {}
        self._due = time.monotonic()

    def hold(self, commands: Mapping[str, float], seconds: float) -> None:
        """Jog the valves for this number of seconds; jogs are renewed before they expire."""
        self._due = max(self._due, time.monotonic()) + seconds
        while True:
            jogs = [Jog(valve=name, command=command) for name, command in commands.items()]
            try:
                asyncio.run_coroutine_threadsafe(_do(self._run, *jogs), self._loop).result(TIMEOUT)
            except HilserverError:  # refused: mostly because the rig is no longer RUNNING
                self._look()
                raise
            renew = time.monotonic() + self._renewed
            while (now := time.monotonic()) < min(self._due, renew):
                self._look()
                if self._ended.wait(min(self._due - now, LOOK_BY_HAND)):
                    raise HilserverError("ended")
            if now >= self._due:
                return

    def now(self, channel: str) -> float:
        """The latest value of a channel, SI."""
        return float(self._look()[self._columns[channel]])

    def highest(self, channel: str) -> float:
        """The highest value of a channel since the last call, SI."""
        self._look()
        return self._highest.pop(channel)

    def recording(self) -> Recording:
        """From the log so far. The valves are at null while it is evaluated: jogs expire."""
        assert self._run.recording.log_file is not None  # it is RUNNING
        return recording_of_log(self._run.rig, self._run.recording.log_file)

    def _look(self) -> Floats:
        row = self._run.telemetry.latest()
        assert row is not None  # it is RUNNING
        if header(row).mode != Mode.RUNNING:
            log = self._run.recording.log_file
            raise RunEnded(f"{_left(self._run.rig, row, 'while its valves were moved')} Recorded so far: {log}.")
        for name, column in self._columns.items():
            self._highest[name] = max(self._highest.get(name, -inf), float(row[column]))
        return row


async def _served(rig: Rig, conversation: Callable[[ServerRun], Awaitable[None]], what: str) -> Path:
    """Run a server of the rig while an exchange with it lasts; returns the log."""
    if not rig.settings.recording.enabled:
        raise HilserverError(f"{rig.file}: recording.enabled is false, but the log is required for the evaluation.")
    everything = rig.settings.recording.model_copy(update={"signals": ()})  # the evaluation requires it
    rig = replace(rig, settings=rig.settings.model_copy(update={"recording": everything}))
    supervisor = Supervisor(rig, attended=True)
    serving = asyncio.create_task(supervisor.run())
    started = asyncio.create_task(supervisor.started())
    await asyncio.wait({serving, started}, return_when=asyncio.FIRST_COMPLETED)
    started.cancel()
    if not serving.done():
        talking = asyncio.ensure_future(conversation(started.result()))
        await asyncio.wait({serving, talking}, return_when=asyncio.FIRST_COMPLETED)
        supervisor.stop()
        interrupted = not talking.done()
        talking.cancel()
        await serving
        if interrupted:
            raise HilserverError(f"{rig.settings.name} ended before {what}; recorded so far: {supervisor.log_file}")
        await talking
    await serving
    if supervisor.log_file is None:
        raise HilserverError(f"{rig.settings.name} ended before anything was recorded.")
    return supervisor.log_file


async def _passes(run: ServerRun, strategies: Sequence[str | None], tell: Callable[[str], object]) -> None:
    for strategy in strategies:
        if strategy is not None:
            for valve in run.rig.settings.valves:
                await _do(run, SelectStrategy(valve=valve, strategy=strategy))
        tell(f"{run.rig.settings.name}: work cycle with {strategy or 'the strategies of the rig file'}")
        await asyncio.sleep(PAUSE)
        await _do(run, Arm(), Start(), Cycle(action="start"))
        await _pass(run, strategy)
        await _do(run, Stop(), Disarm())


async def _do(run: ServerRun, *commands: Command) -> None:
    """Execute commands, one after the other. Raises HilserverError if one is refused."""
    for command in commands:
        answer = await run.executor.execute(command)
        if not answer.ok:
            raise HilserverError(f"{run.rig.settings.name}: {command.name} was refused: {answer.reason}")


async def _pass(run: ServerRun, strategy: str | None) -> None:
    """Wait for the end of the work cycle. Raises HilserverError if RUNNING ends before it."""
    while True:
        await asyncio.sleep(LOOK)
        row = run.telemetry.latest()
        if row is None:
            continue
        if header(row).mode != Mode.RUNNING:
            raise _left(run.rig, row, "during its work cycle" + (f" with {strategy}" if strategy else ""))
        if header(row).cycle_time < 0.0:
            return


def _left(rig: Rig, row: Floats, when: str) -> HilserverError:
    """The error for a rig that is no longer RUNNING."""
    reason = fault_reason(rig, int(header(row).fault)) or "a limit ended it"
    return HilserverError(f"{rig.settings.name} went to {Mode(int(header(row).mode)).name} {when}: {reason}.")
