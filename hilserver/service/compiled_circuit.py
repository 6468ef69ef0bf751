"""Compiles the circuit that the loop runs, once it has run for a while, and lets the loop take over the code.

The loop runs every circuit at once, with the code that all circuits share. Code for one circuit alone takes less time
in every tick, with the same results; meanwhile, a process of the lowest priority compiles it, unless it is in the
cache. A switch ends its use.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from math import ceil
from pathlib import Path
from subprocess import DEVNULL, PIPE

from hilserver.compiler.circuit_code import BESIDE_A_LOOP, COMPILE, can_compile, compiled_file, file_made
from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Indices
from hilserver.rig.settings import LoopSettings
from hilserver.service.running_circuit import Running, RunningCircuit
from hilserver.service.troubles import TellOfSource

SETTLED = 20.0
"""Seconds for which a circuit has run before it is compiled: who tries values, switches more often than that."""
LOOK = 0.5
TAKE_OVER = 0.5e-3
"""Seconds by which a tick of the loop may last longer when it takes code over; measured: 0.25 ms."""
_log = logging.getLogger(__name__)


def may_take_over(loop: LoopSettings, rate: float) -> bool:
    """Whether a loop with this rate, ticks per second, is to use such code, and does not trip when it takes it over."""
    return loop.compiled_circuit and (loop.max_missed + 1) / rate >= TAKE_OVER


class CompiledCircuit:
    """``running`` returns the circuit that the loop runs; ``use`` lets the loop use its code."""

    def __init__(
        self,
        running: Running,
        use: Callable[[RunningCircuit, Path], Awaitable[bool]],
        settled: float = SETTLED,
    ) -> None:
        self._running, self._use, self._settled = running, use, settled

    async def keep(self, tell: TellOfSource) -> None:
        """Compile each circuit that stays. ``tell``: reports it once for each (no trouble; text)."""
        done, told = 0, set[Path]()
        while True:
            await asyncio.sleep(LOOK)
            circuit = self._running()
            if circuit.version == done:
                continue
            done = circuit.version
            try:
                file = compiled_file(circuit.packed.index)
                if file is None and can_compile() and await self._stays(circuit):
                    file = await _compiled(circuit.packed.index)
                if file is not None and await self._use(circuit, file) and file not in told:
                    told.add(file)
                    tell(None, "The loop now runs code that was compiled for this circuit, which takes less time.")
            except (HilserverError, OSError) as error:
                _log.warning("the circuit runs without code that is compiled for it: %s", error)

    async def _stays(self, circuit: RunningCircuit) -> bool:
        """Whether the loop runs this circuit for a while."""
        for _ in range(ceil(self._settled / LOOK)):
            await asyncio.sleep(LOOK)
            if self._running().version != circuit.version:
                return False
        return True


async def _compiled(index: Indices) -> Path:
    """Compile in a process, which ends with this task. Raises HilserverError if it can't be compiled."""
    command = (*COMPILE, BESIDE_A_LOOP)
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=DEVNULL, stderr=PIPE)
    try:
        _, error = await process.communicate(index.tobytes())
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return file_made(index, error)
