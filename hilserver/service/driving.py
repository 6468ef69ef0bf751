"""A rig driven through its work cycle in real time, under one strategy after the other, for its log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from hilserver.errors import HilserverError
from hilserver.rig import columns as c
from hilserver.rig.load import Rig
from hilserver.service import messages as m
from hilserver.service.observer import fault_text
from hilserver.service.supervisor import Supervisor

LOOK = 0.05
"""s between two looks at the rig."""
CALM = 0.5
"""s between two passes, with the valves at null."""


async def record_passes(rig: Rig, strategies: Sequence[str | None], tell: Callable[[str], object]) -> Path:
    """Run a server of the rig, let its work cycle run once under each strategy, end the server; returns the log.

    None stands for the strategies of the rig file. ``tell`` gets a line per pass. Raises HilserverError where the
    server can't start, a command is refused, or the rig leaves RUNNING on the way; the valves are at null then.
    """
    if rig.cycle is None:
        raise HilserverError(f"{rig.file}: there is no work cycle to run (cycle = …).")
    if not rig.settings.recording.enabled:
        raise HilserverError(f"{rig.file}: recording.enabled is false, but the log is what is evaluated.")
    supervisor = Supervisor(rig)
    serving = asyncio.create_task(supervisor.run())
    ready = asyncio.create_task(supervisor.ready.wait())
    await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()
    if not serving.done():
        passing = asyncio.create_task(_passes(supervisor, strategies, tell))
        await asyncio.wait({serving, passing}, return_when=asyncio.FIRST_COMPLETED)
        supervisor.stop()
        interrupted = not passing.done()
        passing.cancel()
        await serving
        if interrupted:
            raise HilserverError(
                f"{rig.settings.name} ended before its passes did; what was recorded: {supervisor.log_file}"
            )
        await passing
    await serving
    if supervisor.log_file is None:
        raise HilserverError(f"{rig.settings.name} ended before anything was recorded.")
    return supervisor.log_file


async def _passes(supervisor: Supervisor, strategies: Sequence[str | None], tell: Callable[[str], object]) -> None:
    for strategy in strategies:
        if strategy is not None:
            for valve in supervisor.rig.settings.valves:
                await _do(supervisor, m.SelectStrategy(valve=valve, strategy=strategy))
        tell(f"{supervisor.rig.settings.name}: work cycle with {strategy or 'the strategies of the rig file'}")
        await asyncio.sleep(CALM)
        await _do(supervisor, m.Arm(), m.Start(), m.Cycle(action="start"))
        await _pass(supervisor, strategy)
        await _do(supervisor, m.Stop(), m.Disarm())


async def _do(supervisor: Supervisor, *commands: m.Command) -> None:
    """Commands, one after the other. Raises HilserverError where one is refused."""
    assert supervisor.operator is not None
    for command in commands:
        answer = await supervisor.operator.execute(command)
        if not answer.ok:
            raise HilserverError(f"{supervisor.rig.settings.name}: {command.name} was refused: {answer.reason}")


async def _pass(supervisor: Supervisor, strategy: str | None) -> None:
    """Wait for the end of the work cycle. Raises HilserverError where RUNNING ends before it."""
    assert supervisor.observer is not None
    while True:
        await asyncio.sleep(LOOK)
        row = supervisor.observer.latest()
        if row is None:
            continue
        if row[c.MODE] != c.RUNNING:
            reason = fault_text(supervisor.rig, int(row[c.FAULT])) or "a limit ended it"
            name = f" with {strategy}" if strategy else ""
            mode = c.MODE_NAMES[int(row[c.MODE])]
            raise HilserverError(f"{supervisor.rig.settings.name} went to {mode} in its work cycle{name}: {reason}.")
        if row[c.CYCLE_TIME] < 0.0:
            return
