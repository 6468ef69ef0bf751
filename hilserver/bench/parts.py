"""The cost of a tick by part, and of the other work of the real-time loop in each cycle.

The program contains the tick once more with each of its parts (the functions that it calls) wrapped in a function that
adds up the processor cycles which the part takes (:mod:`hilserver.tick.timed`). Its results are the same, bit for bit,
for the recorded inputs of a work cycle. Reading the cycle counter costs some nanoseconds per part; this overhead is
measured with an empty part and subtracted.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from hilserver.circuit.program import Program
from hilserver.compiler import compiled_program
from hilserver.numerics.arrays import Floats
from hilserver.realtime.shared import LoopMemory
from hilserver.record.run import run_header
from hilserver.record.writer import LogWriter
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick import timed
from hilserver.tick.bridge.strategies import Strategy, looks_ahead
from hilserver.tick.program import no_command, work_array
from hilserver.tick.row import input_columns, valve_state

PARTS = {
    "scale_channels": "scaling",
    "note_readings": "limits",
    "check_limits": "limits",
    "take_delayed": "inputs",
    "take_command": "commands and modes",
    "watch": "commands and modes",
    "react": "reactions",
    "set_inputs": "inputs",
    "follow_machine": "machine model",
    "drive_actuators": "actuators",
    "run_circuit": "circuit",
    "watch_circuit": "circuit",
    "drive_valves": "bridge",
    "set_outputs": "outputs",
}
"""The part of the tick that a function belongs to; a function that is not listed is a part of its own name."""
LOOK_AHEAD = "look-ahead"
PLAIN_STRATEGY = Strategy["inverse_lag_leakage"]
"""The best strategy without look-ahead."""
CALLS_TIMED = 2000
"""Calls that are timed together."""


@dataclass(frozen=True)
class PartCost:
    """The cost of a part, µs per tick; ``where``: in the tick, in the loop around it, or in another process."""

    name: str
    where: str
    median: float


# --- parts of the tick ------------------------------------------------------------------------------------------------


def tick_parts(recorded: RecordedInputs, repeats: int = 7) -> list[PartCost]:
    """The parts of the tick over recorded inputs, medians of repeated runs."""
    costs: dict[str, float] = {}
    for name, cost in recorded.timed(repeats).items():
        costs[PARTS.get(name, name)] = costs.get(PARTS.get(name, name), 0.0) + cost
    plain = recorded.without_look_ahead()
    if plain is not None:
        circuit = sum(cost for name, cost in plain.timed(repeats).items() if PARTS.get(name) == "circuit")
        costs[LOOK_AHEAD] = max(costs["circuit"] - circuit, 0.0)
        costs["circuit"] = circuit
    return [PartCost(name, "tick", cost) for name, cost in costs.items()]


@dataclass(frozen=True)
class RecordedInputs:
    """The inputs of some ticks: the row before the first (``row``), the input columns of each (``given``).

    ``given`` is float64[ticks, inputs]; ``last`` is the row after the last tick.
    """

    rig: Rig
    program: Program
    row: Floats
    given: Floats
    last: Floats

    @classmethod
    def of(cls, rig: Rig, ticks: int | None = None, program: Program | None = None) -> RecordedInputs:
        """The first ``ticks`` ticks of the work cycle (default: the whole cycle).

        Raises ConfigurationError if the rig has devices that need a clock of their own.
        """
        with LockstepRun(rig, program=program) as run:
            run.start()
            row = run.row.copy()
            rows = run.run(ticks or run.ticks_per_cycle or 2000)
            return cls(rig, run.program, row, rows[:, input_columns(rig.plan)].copy(), rows[-1])

    @property
    def circuit(self) -> Floats:
        """The values of the circuit after the last tick."""
        first = self.rig.plan.layout[0].circuit
        return self.last[first : first + len(self.rig.packed.values)].copy()

    def arguments(self, row: Floats) -> tuple[Any, ...]:
        """Arguments of `run_recorded` for one run over these inputs, which changes ``row``."""
        rig, rows = self.rig, np.empty((len(self.given), 1))
        work, command, columns = work_array(rig.packed, rig.plan), no_command(), input_columns(rig.plan)
        return rig.plan.block, rig.packed.index, rig.packed.value, row, work, command, columns, self.given, rows

    def without_look_ahead(self) -> RecordedInputs | None:
        """The same inputs with a strategy without look-ahead; None if no valve's strategy looks ahead."""
        row, plan = self.row.copy(), self.rig.plan
        valves = [valve_state(plan, row, i) for i in range(len(plan.valve))]
        ahead = [b for b in valves if looks_ahead(b.strategy)]
        if not ahead:
            return None
        for b in ahead:
            b.strategy = PLAIN_STRATEGY
        return replace(self, row=row)

    def timed(self, repeats: int) -> dict[str, float]:
        """The cost of each function that the tick calls, by name: µs per tick, median of the runs."""
        tick = timed_tick(self.program)
        runs = []
        for number in range(repeats + 1):
            _, cycles, microseconds = tick.run(self)
            if number:  # the first run warms up
                runs.append(np.maximum(cycles - len(self.given) * tick.overhead, 0.0) * microseconds / len(self.given))
        return dict(zip(tick.names, np.median(runs, axis=0).tolist(), strict=True))


class TimedTick:
    """The tick of a program with its parts timed.

    ``names``: the functions that it calls, in the order of their first call. ``overhead``: cycles that the timing
    itself adds to each call of a part.
    """

    names = timed.PARTS

    def __init__(self, program: Program) -> None:
        self._program = program
        self._cycles = program.table(timed.TABLE, timed.CELLS)
        self.overhead = self._measured_overhead()

    def run(self, recorded: RecordedInputs) -> tuple[Floats, Floats, float]:
        """One run over the recorded inputs: the row at its end, the cycles of each function, µs per cycle."""
        row = recorded.row.copy()
        run = self._program.timed_run.bound(*recorded.arguments(row))
        self._cycles[:] = 0
        begin, first = time.perf_counter(), self._now()
        run()
        microseconds = (time.perf_counter() - begin) * 1e6 / (self._now() - first)
        return row, self._cycles[: len(self.names)].astype(np.float64), microseconds

    def _now(self) -> int:
        """The cycle counter."""
        self._program.read_counter()
        return int(self._cycles[timed.COUNTER])

    def _measured_overhead(self) -> float:
        found = []
        for _ in range(20):
            self._cycles[:] = 0
            self._program.time_nothing(CALLS_TIMED)
            found.append(float(self._cycles[timed.EMPTY]) / CALLS_TIMED)
        return statistics.median(found)


timed_tick = functools.cache(TimedTick)
"""The timed tick of a program."""


# --- around the tick --------------------------------------------------------------------------------------------------


def parts_around(rig: Rig, repeats: int = 7) -> list[PartCost]:
    """The cost of the real-time loop around its tick, without devices, and of the recorder in its own process."""
    width = rig.layout.width
    with TemporaryDirectory(prefix="hilserver-bench-") as folder, contextlib.ExitStack() as stack:
        memory = LoopMemory.create(Path(folder) / "loop", row_width=width, ring_rows=1000)
        writer = LogWriter(Path(folder) / "log.arrow", run_header(rig, "bench", "lockstep"))
        for each in (memory, writer):
            stack.callback(each.close)
        return [
            PartCost("call from Python", "loop", median_time(repeats, CALLS_TIMED, _empty_call(rig))),
            PartCost("publish", "loop", median_time(repeats, CALLS_TIMED, _publishing(memory))),
            PartCost(
                "recorder", "recorder", median_time(repeats, CALLS_TIMED, partial(writer.append, np.zeros((1, width))))
            ),
        ]


def _empty_call(rig: Rig) -> Callable[[], object]:
    """A call from Python that does almost nothing."""
    return compiled_program(rig.library).read_counter.bound()


def _publishing(memory: LoopMemory) -> Callable[[], object]:
    row = np.zeros(memory.ring.width)

    def publish() -> None:
        memory.ring.publish(row)
        memory.loop_heartbeat.beat()

    return publish


def median_time(repeats: int, turns: int, action: Callable[[], object]) -> float:
    """µs per call, median of ``repeats`` batches after one to warm up."""
    times = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        for _ in range(turns):
            action()
        times.append((time.perf_counter() - begin) / turns * 1e6)
    return statistics.median(times[1:])
