"""What a tick consists of: cost by part, by component type of the circuit, and by driver.

The parts are timed in the tick itself, with a look at the processor's cycle counter between each two of its calls. That
timed tick is made from the tick's own source, so that it can't come to differ from it; it computes the same, bit for
bit, while it runs once more over the recorded inputs of a work cycle.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from hilserver.circuit import engine as e
from hilserver.circuit.program import HEAPLESS, Program
from hilserver.numerics.arrays import Floats, Indices
from hilserver.realtime.shared import LoopMemory
from hilserver.record.run import run_header
from hilserver.record.writer import LogWriter
from hilserver.rig.build import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick import tick as tick_module
from hilserver.tick.bridge.ladder import Strategy
from hilserver.tick.program import compiled_program, no_command, work_array
from hilserver.tick.row import input_columns, valve_columns

NAMES = {
    "scale_channels": "scaling",
    "check_limits": "limits",
    "take_command": "commands and modes",
    "watch": "commands and modes",
    "set_inputs": "inputs",
    "follow_machine": "machine model",
    "run_circuit": "circuit",
    "watch_circuit": "circuit",
    "drive_valves": "bridge",
    "set_outputs": "outputs",
}
"""The tick's calls in the words of its user; another one goes by its own name."""
LOOK_AHEAD, REST = "look-ahead", "nodes, integrator, calls"
PLAIN_STRATEGY = Strategy["inverse_lag_leakage"]
"""The best strategy that does not look ahead."""
CALLS = 2000
"""Kernel calls that are timed as one."""
TURNS = 2000
"""Reads and writes of a device, publications of a row."""


@dataclass(frozen=True)
class Part:
    """A part of what a tick costs, µs per tick; ``where``: tick, loop (around the tick), or another process."""

    name: str
    where: str
    median: float


@dataclass(frozen=True)
class ComponentCost:
    """A component type of the circuit: its kernel calls per evaluation of the circuit, ns per call, µs per tick."""

    type: str
    calls: int
    per_call: float
    per_tick: float


# --- parts of the tick ------------------------------------------------------------------------------------------------


def tick_parts(record: Record, repeats: int = 7) -> list[Part]:
    """The parts of the tick over a recorded stretch, medians of repeated runs."""
    spent = record.timed(repeats)
    parts: dict[str, float] = {}
    for name, cost in spent.items():
        parts[NAMES.get(name, name)] = parts.get(NAMES.get(name, name), 0.0) + cost
    plain = record.without_look_ahead()
    if plain is not None:
        circuit = sum(cost for name, cost in plain.timed(repeats).items() if NAMES.get(name) == "circuit")
        parts[LOOK_AHEAD] = max(parts["circuit"] - circuit, 0.0)
        parts["circuit"] = circuit
    return [Part(name, "tick", cost) for name, cost in parts.items()]


@dataclass
class Record:
    """A stretch of a run: the row before it, and what came in from outside in each of its ticks."""

    rig: Rig
    program: Program
    row: Floats
    given: Floats
    last: Floats
    """The row at its end."""

    @classmethod
    def of(cls, rig: Rig, ticks: int | None = None, program: Program | None = None) -> Record:
        """The first ``ticks`` ticks of the work cycle (default: all of it).

        Raises ConfigurationError where the rig has devices that need a clock of their own.
        """
        with LockstepRun(rig, program=program) as run:
            run.start()
            row = run.row.copy()
            rows = run.run(ticks or run.ticks_per_cycle or 2000)
            return cls(rig, run.program, row, rows[:, inputs_of(rig)].copy(), rows[-1])

    @property
    def circuit(self) -> Floats:
        """The circuit's values at its end."""
        first = self.rig.plan.layout[0].circuit
        return self.last[first : first + len(self.rig.packed.values)].copy()

    def without_look_ahead(self) -> Record | None:
        """The same with strategies that do not look ahead; None where none does."""
        places = np.array(valve_columns(self.rig.plan, "strategy"))
        ahead = (self.row[places] >= Strategy.second_order) & (self.row[places] <= Strategy.adaptive)
        if not ahead.any():
            return None
        row = self.row.copy()
        row[places[ahead]] = PLAIN_STRATEGY
        return Record(self.rig, self.program, row, self.given, self.last)

    def timed(self, repeats: int) -> dict[str, float]:
        """What each call of the tick takes, by its name: µs per tick, median of so many runs."""
        names, run = timed_tick(self.program)
        runs = []
        for number in range(repeats + 1):
            _, spent, seconds = self.run(run, len(names))
            whole, nothing, calls = spent[0], spent[1], spent[2:]
            if number:  # the first run warms up
                runs.append(np.maximum(calls - nothing, 0.0) * (seconds / whole) / len(self.given) * 1e6)
        return dict(zip(names, np.median(runs, axis=0).tolist(), strict=True))

    def run(self, run: Callable[..., None], calls: int) -> tuple[Floats, Floats, float]:
        """One run of the timed tick: the row at its end, cycles spent (in all, by nothing, by each call), seconds."""
        rig, row, spent = self.rig, self.row.copy(), np.zeros(2 + calls, dtype=np.uint64)
        work = work_array(rig.packed, rig.plan)
        begin = time.perf_counter()
        run(
            rig.plan.block,
            rig.packed.index,
            rig.packed.value,
            row,
            work,
            no_command(),
            inputs_of(rig),
            self.given,
            spent,
        )
        return row, spent.astype(np.float64), time.perf_counter() - begin


def inputs_of(rig: Rig) -> Any:
    """The columns that are set from outside before a tick."""
    return np.array(input_columns(rig.plan), dtype=np.int64)


@functools.cache
def timed_tick(program: Program) -> tuple[list[str], Callable[..., None]]:
    """The names of the tick's calls, and a compiled run over given inputs that notes the cycles each of them spends."""
    names, source = stamped(inspect.getsource(tick_module.tick))
    scope = {**program.tick.py_func.__globals__, "cycles": _cycles, "take": program.take}
    exec(compile(source, "<timed tick>", "exec"), scope)
    scope["stamped_tick"] = numba.njit(scope["stamped_tick"], **HEAPLESS)
    exec(compile(inspect.getsource(_run_timed), "<timed run>", "exec"), scope)
    return names, numba.njit(scope["_run_timed"], **HEAPLESS)


def stamped(source: str) -> tuple[list[str], str]:
    """The tick's source with stamps around each of its calls: names of these, and the new source."""
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    names: list[str] = []
    body: list[ast.stmt] = _statements("begin = cycles(); spent[1] += cycles() - begin")
    for statement in function.body[1:]:  # behind the docstring
        call = getattr(statement, "value", None)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            names.append(call.func.id)
            end = f"spent[{1 + len(names)}] += cycles() - begin"
            body += [*_statements("begin = cycles()"), statement, *_statements(end)]
        else:
            body.append(statement)
    arguments = ", ".join([*(argument.arg for argument in function.args.args), "spent"])
    return names, f"def stamped_tick({arguments}):\n" + "".join(f"    {ast.unparse(line)}\n" for line in body)


def _statements(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def _run_timed(plan, ix, val, row, work, command, inputs, given, spent):  # type: ignore[no-untyped-def]
    begin = cycles()  # type: ignore[name-defined]  # noqa: F821 - compiled in the scope of the tick
    for k in range(given.shape[0]):
        take(row, inputs, given, k)  # type: ignore[name-defined]  # noqa: F821
        stamped_tick(plan, ix, val, row, work, command, spent)  # type: ignore[name-defined]  # noqa: F821
    spent[0] += cycles() - begin  # type: ignore[name-defined]  # noqa: F821


def _read_cycle_counter(_typing: Any) -> Any:
    """The processor's time stamp counter, which runs at a constant rate on every x86-64 of these years."""

    def generate(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [])
        return builder.call(builder.module.declare_intrinsic("llvm.readcyclecounter", fnty=kind), [])

    return numba.types.uint64(), generate


_cycles: Any = intrinsic(_read_cycle_counter)


# --- around the tick --------------------------------------------------------------------------------------------------


def parts_around(rig: Rig, repeats: int = 7) -> list[Part]:
    """What a real-time loop spends around its tick, devices left aside; and the recorder, in its own process."""
    width = rig.layout.width
    with TemporaryDirectory(prefix="hilserver-bench-") as folder, contextlib.ExitStack() as stack:
        memory = LoopMemory.create(Path(folder) / "loop", row_width=width, ring_rows=1000)
        writer = LogWriter(Path(folder) / "log.arrow", run_header(rig, "bench", "lockstep"))
        for each in (memory, writer):
            stack.callback(each.close)
        return [
            Part("call from Python", "loop", median_time(repeats, TURNS, _empty_call(rig))),
            Part("publish", "loop", median_time(repeats, TURNS, _publishing(memory))),
            Part("recorder", "recorder", median_time(repeats, TURNS, partial(writer.append, np.zeros((1, width))))),
        ]


def _empty_call(rig: Rig) -> Callable[[], object]:
    """Handing the tick its arguments, without a tick."""
    nothing = numba.njit(_nothing, **HEAPLESS)
    row, work, command = np.zeros(rig.layout.width), work_array(rig.packed, rig.plan), no_command()
    return lambda: nothing(rig.plan, rig.packed.index, rig.packed.value, row, work, command)


def _nothing(plan, ix, val, row, work, command):  # type: ignore[no-untyped-def]
    pass


def _publishing(memory: LoopMemory) -> Callable[[], object]:
    row = np.zeros(memory.ring.width)

    def publish() -> None:
        memory.ring.publish(row)
        memory.loop_heartbeat.beat()

    return publish


def median_time(repeats: int, turns: int, action: Callable[[], object]) -> float:
    """µs per call, median of so many batches; one more warms up."""
    times = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        for _ in range(turns):
            action()
        times.append((time.perf_counter() - begin) / turns * 1e6)
    return statistics.median(times[1:])


# --- components -------------------------------------------------------------------------------------------------------


def component_costs(rig: Rig, repeats: int = 7, at: Floats | None = None) -> list[ComponentCost]:
    """What each component type of the circuit costs, the most expensive first, and last what none of them does.

    ``at``: values of the running circuit (default: the initial ones). Each type's kernel calls are timed by themselves,
    over and over, and counted as often as the circuit is evaluated in a tick. What is left of the circuit's time is
    that of its nodes, the integrator and the way to the kernels. Looking ahead, which some strategies do with a copy of
    the circuit, is not in it.
    """
    program, packed = compiled_program(rig.library), rig.packed
    z, y, work = np.zeros(len(packed.values)), np.zeros(len(packed.recorded)), np.zeros(packed.work_size)
    program.load(packed.index, packed.value, z)
    start = z.copy() if at is None else at
    arguments = (packed.value, z, y, work)

    def advance(index: Indices, steps: int, h: float) -> float:
        z[:] = start
        return median_time(repeats, 20, lambda: program.advance(index, *arguments, steps, h))

    substeps = int(packed.index[e.SUBSTEPS])
    circuit = advance(packed.index, 20 * substeps, rig.plan.loop[0].dt / substeps) / 20
    stages = {e.EULER: 1.0, e.RK4: 4.0}.get(int(packed.index[e.INTEGRATOR]))
    if stages is None:  # it divides its steps where it has to: as many as its time is worth, one of Euler's being one
        euler = packed.index.copy()
        euler[e.INTEGRATOR] = e.EULER
        stages = circuit / (advance(euler, 1000, 0.0) / 1000) / substeps
    costs = []
    for name, calls, sampled in _types(rig):
        function = program.evaluate_sampled if sampled else program.evaluate
        index = repeated(packed.index, calls, sampled)
        count = int(index[e.N_SAMPLED if sampled else e.N_CALLS])
        z[:] = start
        per_call = median_time(repeats, 50, partial(function, index, *arguments)) / count
        times = substeps * (1.0 if sampled else stages)
        costs.append(ComponentCost(name, len(calls), 1e3 * per_call, per_call * len(calls) * times))
    costs.sort(key=lambda cost: -cost.per_tick)
    return [*costs, ComponentCost(REST, 0, 0.0, max(circuit - sum(cost.per_tick for cost in costs), 0.0))]


def _types(rig: Rig) -> Iterator[tuple[str, list[Indices], bool]]:
    """Component types of the circuit with the lines of their kernel calls; sampled kernels by themselves."""
    kinds = {contract.kind: contract.component.type_name for contract in rig.library.contracts}
    index = rig.packed.index
    for sampled, number, table in ((False, e.N_CALLS, e.CALLS), (True, e.N_SAMPLED, e.SAMPLED)):
        lines = index[int(index[table]) : int(index[table]) + 4 * int(index[number])].reshape(-1, 4)
        names = [kinds[int(line[0])] for line in lines]
        for name in dict.fromkeys(names):
            calls = [line for line, other in zip(lines, names, strict=True) if other == name]
            yield (f"{name} (sampled)" if sampled else name), calls, sampled


def repeated(index: Indices, calls: list[Indices], sampled: bool) -> Indices:
    """The index with a table of these calls only, over and over: at least 2000 of them."""
    table = np.tile(np.concatenate(calls), -(-CALLS // len(calls)))
    new = np.concatenate([index, table])
    new[e.SAMPLED if sampled else e.CALLS] = len(index)
    new[e.N_SAMPLED if sampled else e.N_CALLS] = len(table) // 4
    return new
