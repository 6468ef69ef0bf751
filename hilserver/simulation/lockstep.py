"""A rig run without a clock: the tick of the real-time loop, against simulated or recorded devices."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import thread_time
from types import TracebackType
from typing import Any, Self

import numpy as np

from hilserver.circuit.model import Circuit
from hilserver.circuit.pack import PackedCircuit
from hilserver.circuit.program import Program
from hilserver.compiler import compiled_program
from hilserver.compiler.circuit_code import use_of
from hilserver.driver import Driver
from hilserver.errors import ConfigurationError, HilserverError, Problem, did_you_mean
from hilserver.numerics.arrays import Floats, Integers
from hilserver.realtime.rig_setup import device_setups
from hilserver.record.format import Event, LogHeader
from hilserver.record.row_events import RowEvents, columns_looked_at, with_row_events
from hilserver.record.run import command_event, packed_record, rows_per_file, run_header, swap_events
from hilserver.record.writer import LogWriter
from hilserver.rig.plan import first_row
from hilserver.rig.rig import Rig
from hilserver.simulation.pacing import TickPace
from hilserver.simulation.rows import RowMemory, TrueValues
from hilserver.simulation.samples import Recordings, TickSamples, read_samples
from hilserver.simulation.steps import Steps, completed
from hilserver.tick.bridge.strategies import STRATEGY_NAMES
from hilserver.tick.codes import CommandKind, Mode, ResultCode, fault_text
from hilserver.tick.hybrid.displacement import AVAILABLE_IN_RIGS, DisplacementStrategy
from hilserver.tick.lockstep import GOES_ON, WAITING_CELLS, Attached, is_unwanted
from hilserver.tick.plant import PlantArrays
from hilserver.tick.program import command_record, no_command, work_array
from hilserver.tick.row import COLUMN, MESSAGE_CELLS, CommandRecord, as_whole, header

BLOCK = 10_000
"""Maximum number of ticks per call of the compiled loop, so that Ctrl-C takes effect."""
LOG_BATCH = 1000
SEQUENCE = CommandRecord.names().index("sequence")
"""Cell of a command's number in its record."""
RECORD = WAITING_CELLS - MESSAGE_CELLS
"""First cell of the record of a command that waits."""
_TICK = COLUMN["tick"]
ANY_MODE = -1
"""In place of a mode: the command is given in whatever mode the rig is."""
ALL_COLUMNS = np.empty(0, dtype=np.int64)
"""In place of some columns of the rows."""
SUPPLY_WITHIN = 1.0
"""s: a simulated pump builds up its pressure, and a sensor with a delay reads 0 at first."""


@dataclass
class _Commands:
    """Commands that wait for their ticks; a switch is alone, and has its circuit.

    ``lines``: of each the number of ticks run before it, at least, and what else `WAITING_CELLS` has.
    """

    lines: Floats
    circuit: Circuit | None = None
    packed: PackedCircuit | None = None
    about: Mapping[str, Any] | None = None


NO_LINES = np.empty((0, WAITING_CELLS))
"""In place of commands."""


@dataclass
class _Player:
    """A device that replays samples: its driver, and the columns of the row that it fills."""

    driver: Driver
    columns: list[int]
    raw: Floats
    ages: Floats


class LockstepRun:
    """Runs a rig tick by tick, without waiting or as ``pacing`` says; ``row`` is its memory, as in the real-time loop.

    Commands wait in a queue and are taken one per tick, in order, beginning with the next tick. With ``log`` every
    tick is recorded there as in a real-time run. (Ticks start at 0; there is no wall clock, so ``utc`` is 0.)
    ``trace=True`` keeps the simulated devices' true values, see `true_values`.

    Raises ConfigurationError for devices that need a clock of their own.
    """

    def __init__(
        self,
        rig: Rig,
        log: Path | None = None,
        *,
        program: Program | None = None,
        trace: bool = False,
        pacing: TickPace | None = None,
    ) -> None:
        self.rig = rig
        self.program = program or compiled_program(rig.library)
        self.packed = rig.packed
        self.row = first_row(rig.layout, rig.plan, rig.packed)
        self._whole = as_whole(self.row)
        for column in rig.layout.section("confirmed_age").values():
            self.row[column] = 0.0  # simulated and recorded devices have every command at once
        self.plants = rig.plants()
        self.samples: dict[str, TickSamples] = {}
        expected = self.ticks_per_cycle + round(SUPPLY_WITHIN / self.dt)
        self._traces = {name: TrueValues(len(p.values), expected) for name, p in self.plants.items()} if trace else None
        self.reacted: list[tuple[int, Event]] = []
        """The reactions that have fired so far: tick and event of the log."""
        self._watched = columns_looked_at(rig.layout.names)
        self._reactions = RowEvents([rig.layout.names[column] for column in self._watched])
        self._queue: deque[_Commands] = deque()
        self._sequence = self._ran = self._late = 0
        self._attached: list[tuple[str, Attached]] = []
        self._players: list[_Player] = []
        self._connect()
        self._untraced = tuple(each for _, each in self._attached)
        self._work = work_array(self.packed, rig.plan)
        self._none, self._kept = no_command(), ALL_COLUMNS
        self._run = (self.program.run_bridged if self._attached else self.program.run_recorded).repeated()
        self._inputs = np.array(
            [COLUMN["tick"], COLUMN["missed"]] + [i for p in self._players for i in p.columns], dtype=np.int64
        )
        self._pacing = pacing
        self._writer = _writer(rig, log, run_header(rig, self.program.fingerprint, "lockstep")) if log else None
        self._columns_suffice = bool(self._attached) and log is None

    def _connect(self) -> None:
        """Simulated devices with their slots and columns, replay devices with their samples."""
        rig = self.rig
        for device, setup in zip(rig.devices, device_setups(rig, {}), strict=True):
            slots = np.arange(setup.first_slot, setup.first_slot + len(setup.inputs))
            if device.name in self.plants:
                plant = self.plants[device.name]
                raw, outputs = np.zeros(len(slots)), np.array(setup.output_columns, dtype=np.int64)
                confirmed = rig.plan.layout[0].confirmed + setup.first_output + np.arange(len(outputs))
                attached = Attached(plant, slots, outputs, confirmed, raw, np.zeros(len(outputs)), _no_trace(plant))
                self._attached.append((device.name, attached))
            elif device.is_replayed:
                self.samples[device.name] = read_samples(device, rig.file, self.dt)
                host = Recordings(self.samples)
                player = device.driver.create(host, device.name, device.config, device.inputs, device.outputs)
                layout = rig.plan.layout[0]
                columns = [int(start + slot) for start in (layout.raw, layout.age) for slot in slots]
                self._players.append(_Player(player, columns, np.zeros(len(slots)), np.zeros(len(slots))))
            else:
                name = rig.settings.devices[device.name]["driver"]
                text = f'"{name}" works in real time only; only the drivers simulated and replay work without a clock.'
                raise ConfigurationError([Problem(text, f"devices.{device.name}.driver", str(rig.file))])

    # --- properties ------------------------------------------------------------------------------------------------

    @property
    def dt(self) -> float:
        """Tick, s."""
        return float(self.rig.plan.loop[0].dt)

    @property
    def tick(self) -> int:
        """Number of the last tick; -1 before the first."""
        return int(self._whole[_TICK])

    @property
    def mode(self) -> str:
        """SAFE, ARMED, …"""
        return Mode(int(header(self.row).mode)).name

    @property
    def fault(self) -> str:
        """The cause of the trip; empty without a fault."""
        return fault_text(int(header(self.row).fault), self.rig.layout.limits)

    @property
    def ticks_recorded(self) -> int | None:
        """Ticks for which all replay devices have samples; None without such a device."""
        return min((len(samples) for samples in self.samples.values()), default=None)

    @property
    def ticks_per_cycle(self) -> int:
        """Ticks of the work cycle; 0 without one."""
        return round(self.rig.cycle.duration / self.dt) if self.rig.cycle is not None else 0

    def true_values(self, device: str) -> Floats:
        """A simulated device at the end of every tick so far, float64[ticks, values]; needs ``trace=True``."""
        return (self._traces or {})[device].values

    # --- commands --------------------------------------------------------------------------------------------------

    def command(
        self,
        kind: int,
        *arguments: float,
        about: Mapping[str, Any] | None = None,
        after: int = 0,
        mode: int = ANY_MODE,
        wanted: int = GOES_ON,
    ) -> None:
        """Queue a command; kinds in `hilserver.tick.codes`. ``about``: what the log notes of it.

        ``after``: number of ticks from now on that come before it. ``mode``: the run ends before it if the rig is in
        another mode, and those that wait are dropped. ``wanted``: likewise, it ends with it if the result is another
        one (`hilserver.tick.lockstep`: IF_DONE, IF_REFUSED).
        """
        self.give(command_record(kind, *arguments), about=about, after=after, mode=mode, wanted=wanted)

    def give(
        self,
        record: Floats,
        *,
        about: Mapping[str, Any] | None = None,
        after: int = 0,
        mode: int = ANY_MODE,
        wanted: int = GOES_ON,
    ) -> None:
        """Queue a command as a record, which may be used again."""
        self._queue.append(_Commands(self._lines(record[None], after, mode, wanted), about=about))

    def give_all(self, records: Floats, after: Integers, mode: int, wanted: int) -> None:
        """Queue several commands at once; ``after``: for each, the number of ticks from now on that come before it."""
        self._queue.append(_Commands(self._lines(records, after, mode, wanted)))

    def set_input(self, name: str, value: float) -> None:
        """Queue a new value of an operator input."""
        self.command(CommandKind.SET_INPUT, _index(name, list(self.rig.settings.inputs), "an input"), value)

    def select(self, strategy: str, driven: str) -> None:
        """Queue another strategy for a valve or an actuator. Raises HilserverError for what the rig does not have."""
        valves, actuators = list(self.rig.settings.valves), list(self.rig.settings.actuators)
        number = _index(driven, [*valves, *actuators], "a valve or actuator" if actuators else "a valve")
        chosen = _index(strategy, list(STRATEGY_NAMES), "a strategy") if driven in valves else _law(strategy)
        self.command(CommandKind.STRATEGY, number, chosen)

    def swap(self, circuit: Circuit, packed: PackedCircuit | None = None, wanted: int = GOES_ON) -> None:
        """Queue a switch to another circuit, packed or not; ``wanted``: see `command`.

        Raises ConfigurationError if the rig can't run it.
        """
        waiting = [command.packed for command in self._queue if command.packed is not None]
        before, new = (waiting or [self.packed])[-1], packed or self.rig.pack(circuit)
        version = header(self.row).circuit_version + len(waiting) + 1
        record = command_record(CommandKind.SWAP, version, float(new.names == before.names))
        self._queue.append(_Commands(self._lines(record[None], 0, ANY_MODE, wanted), circuit, new))

    def miss(self, ticks: int) -> None:
        """Delay the next tick by this number of ticks."""
        self._late = ticks

    @property
    def late(self) -> int:
        """By how many ticks the next one is delayed."""
        return self._late

    def _lines(self, records: Floats, after: int | Integers, mode: int, wanted: int) -> Floats:
        """Commands that wait, see `_Commands`, with the next numbers."""
        lines = np.empty((len(records), WAITING_CELLS))
        lines[:, 0], lines[:, 1], lines[:, 2], lines[:, RECORD:] = self._ran + after, mode, wanted, records
        as_whole(lines)[:, RECORD + SEQUENCE] = np.arange(self._sequence + 1, self._sequence + len(lines) + 1)
        self._sequence += len(lines)
        return lines

    # --- running ---------------------------------------------------------------------------------------------------

    def start(self) -> Floats:
        """Arm, start, and start the work cycle if there is one; returns the rows of these ticks.

        Raises HilserverError with the reason if the rig does not start.
        """
        rows = self.arm_and_start()
        if self.rig.cycle is None:
            return rows
        self.command(CommandKind.CYCLE, 1.0)
        return np.concatenate([rows, self._obeyed()])

    def arm_and_start(self) -> Floats:
        """The same without the work cycle. A supply that is not there yet is waited for."""
        self.command(CommandKind.ARM)
        rows = [self.run(1, hold_commands=True)] + [self._obeyed() for _ in range(len(self._queue))]
        self.command(CommandKind.START)
        for _ in range(round(SUPPLY_WITHIN / self.dt)):
            rows.append(self.run(1))
            if header(self.row).result != ResultCode.NO_SUPPLY:
                break
            self.command(CommandKind.START)
        self._require_done()
        return np.concatenate(rows)

    def _obeyed(self) -> Floats:
        row = self.run(1)
        self._require_done()
        return row

    def _require_done(self) -> None:
        result = int(header(self.row).result)
        if result != ResultCode.DONE:
            active = ", ".join(
                name for name in self.rig.layout.limits if self.row[self.rig.layout.column(f"limit.{name}")] > 0
            )
            reason = ResultCode(result).text + (f" (violated: {active})" if active else "")
            raise HilserverError(f"{self.rig.file}: the rig does not start in mode {self.mode}: {reason}.")

    def run_cycle(self) -> Floats:
        """Start, run the work cycle once (a record of replay devices to its end); returns all rows."""
        first = self.start()
        ticks = self.ticks_per_cycle if self.ticks_recorded is None else self.ticks_recorded - len(first)
        rows = np.empty((len(first) + max(ticks, 0), self.rig.layout.width))  # tens of megabytes: never copied
        rows[: len(first)] = first
        completed(self._run_into(rows[len(first) :]))
        return rows

    def run(self, ticks: int, *, hold_commands: bool = False, memory: RowMemory | None = None) -> Floats:
        """Run this number of ticks; returns their rows, float64[ticks, width]. ``hold_commands``: take no command.

        With ``memory``, the rows are in it, and valid until it is used again.
        """
        return completed(self.running(ticks, hold_commands=hold_commands, memory=memory))

    def running(
        self,
        ticks: int,
        *,
        hold_commands: bool = False,
        memory: RowMemory | None = None,
        columns: Integers = ALL_COLUMNS,
    ) -> Steps[Floats]:
        """The same in steps: each call of compiled code is one, and all that Python does before it, or after it.

        ``columns``: of the rows, those that are wanted.
        """
        kept = ALL_COLUMNS
        if len(columns) and self._columns_suffice:
            kept = np.concatenate((columns, self._watched)).astype(np.int64) if self._watched else columns
        rows = (memory or RowMemory()).rows(ticks, len(kept) or self.rig.layout.width)
        self._kept = kept
        try:
            count = yield from self._run_into(rows, hold_commands=hold_commands)
        finally:
            self._kept = ALL_COLUMNS
        if not len(columns):
            return rows[:count]
        return rows[:count, : len(columns)] if len(kept) else rows[:count, columns]

    def _run_into(self, rows: Floats, *, hold_commands: bool = False) -> Steps[int]:
        """Run as many ticks as there are rows, and fill these; returns how many were run, see `command`."""
        done, goes_on = 0, True
        while done < len(rows) and goes_on:
            most = 1 if self._late else min(len(rows) - done, BLOCK)
            if self._pacing is not None:
                most = min(most, self._pacing.due())
            given, events, count = (NO_LINES, {}, most) if hold_commands else self._next_commands(most)
            before = self.tick + self._late
            run_block = self._block(rows[done : done + count], given)
            yield self.tick
            run_block()
            yield self.tick
            ran = self.tick - before
            ended = len(given) > 0 and given[-1, 0] == ran - 1 and is_unwanted(self.row, int(given[-1, 2]))
            count, goes_on = ran, ran == count and not ended
            self._ran += ran
            if not goes_on:
                self._drop(int((given[:, 0] >= count).sum()))
            if count == 0:
                break
            block, events = rows[done : done + count], {k: found for k, found in events.items() if k < count}
            fired = self._fired(block, events)
            self.reacted += [(before + 1 + row, event) for row, event in fired]
            if self._pacing is not None:
                self._pacing.computed(count, self.row)
            if self._writer is not None:
                self._writer.append(block, with_row_events(events, fired))
            done += count
        return done

    def _fired(self, rows: Floats, events: Mapping[int, Sequence[Event]]) -> list[tuple[int, Event]]:
        """What reactions and playouts have done in these rows, of which the last columns are kept for that."""
        if not self._watched:
            return []
        watched = slice(-len(self._watched), None) if len(self._kept) else self._watched
        return self._reactions.find(rows[:, watched], events)

    def _drop(self, handed: int) -> None:
        """Drop all commands that wait, as if they had not been queued, and this number that a block did not take."""
        self._sequence -= handed + sum(len(waiting.lines) for waiting in self._queue)
        self._queue.clear()

    def _next_commands(self, most: int) -> tuple[Floats, dict[int, list[Event]], int]:
        """The commands of the next ticks, at most one for each, and how many ticks these are: up to the next switch.

        Of the commands the lines, see `WAITING_CELLS`, and the events, by tick.
        """
        given, events, free = [NO_LINES], dict[int, list[Event]](), 0
        while self._queue:
            waiting = self._queue[0]
            order = np.arange(len(waiting.lines))
            ticks = order + np.maximum.accumulate(np.maximum(waiting.lines[:, 0] - self._ran - order, free))
            if waiting.packed is not None and 0 < ticks[0] < most:
                most = int(ticks[0])
            if (count := int(np.searchsorted(ticks, most))) == 0:
                break
            lines = waiting.lines[:count].copy()
            lines[:, 0] = ticks[:count]
            events |= self._taken(waiting, lines)
            given.append(lines)
            if count < len(ticks):
                waiting.lines = waiting.lines[count:]
                break
            self._queue.popleft()
            free = int(ticks[-1]) + 1
        return np.concatenate(given), events, most

    def _taken(self, waiting: _Commands, lines: Floats) -> dict[int, list[Event]]:
        """Take commands, which for a switch puts the circuit in; their events, as far as anybody needs them."""
        packed, is_told = waiting.packed, self._writer is not None
        if packed is None or waiting.circuit is None:
            told = lines if is_told or waiting.about else NO_LINES
            return {int(line[0]): [command_event(line[RECORD:], waiting.about)] for line in told}
        carried = packed.carried_from(self.packed)
        self._work = work_array(packed, self.rig.plan)
        self.program.swap(self.rig.plan.block, self.row, packed.index, packed.value, carried, self._work)
        self.packed = packed
        if not is_told:
            return {}
        circuit = packed_record(packed, waiting.circuit.source, carried)
        return {int(lines[0, 0]): swap_events(lines[0, RECORD:], circuit)}

    def _block(self, rows: Floats, commands: Floats) -> Callable[[], None]:
        """What runs these ticks with these commands, or those up to a command that ends the run."""
        given, devices = self._given(len(rows)), self._devices(len(rows))
        command = np.concatenate((self._none, commands.ravel())) if len(commands) else self._none

        use, block, value = use_of(self.packed, self.program), self.rig.plan.block, self.packed.value
        of_both = (block, use.index(self.packed), value, self.row, self._work, command, self._inputs, given)
        call = self._run.bound(*of_both, *((devices, rows, self._kept) if self._attached else (rows,)))

        def run() -> None:
            begun = thread_time()
            call()
            use.computed += thread_time() - begun

        return run

    def _devices(self, ticks: int) -> tuple[Attached, ...]:
        """The simulated devices, with room for their true values in these ticks, if they are traced."""
        if self._traces is None:
            return self._untraced
        return tuple(each._replace(trace=self._traces[name].room_for(ticks)) for name, each in self._attached)

    def _given(self, ticks: int) -> Floats:
        """Inputs of the next ticks: their numbers, ticks missed before the first, samples of the replay devices."""
        given = np.zeros((ticks, len(self._inputs)))
        whole = as_whole(given)
        whole[:, 0] = self.tick + self._late + np.arange(1, ticks + 1)
        whole[0, 1], self._late = self._late, 0
        first = 2
        for player in self._players:
            n = len(player.raw)
            for line in given:
                player.driver.read(player.raw, player.ages)
                line[first : first + n], line[first + n : first + 2 * n] = player.raw, player.ages
            first += 2 * n
        return given

    def close(self) -> None:
        """End the log."""
        if self._writer is not None:
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _no_trace(plant: PlantArrays) -> Floats:
    return np.empty((0, len(plant.values)))


def _writer(rig: Rig, log: Path, header: LogHeader) -> LogWriter:
    max_bytes = int(rig.settings.recording.max_megabytes * 1e6)
    return LogWriter(log, header, LOG_BATCH, max_bytes=max_bytes, max_rows=rows_per_file(rig))


def _index(name: str, names: list[str], what: str) -> float:
    if name not in names:
        raise HilserverError(f'"{name}" is not {what} of the rig.{did_you_mean(name, names)}')
    return float(names.index(name))


def _law(strategy: str) -> float:
    _index(strategy, list(AVAILABLE_IN_RIGS), "a strategy of the actuators")
    return float(DisplacementStrategy[strategy])
