"""A test sequence on the log of a run of it: replayed without hardware, with this version of the software."""

from __future__ import annotations

import time
from pathlib import Path

from hilserver.errors import HilserverError
from hilserver.protocol import commands
from hilserver.protocol.commands import CircuitCommand, SetInput
from hilserver.record.format import Event
from hilserver.record.reader import LogReader
from hilserver.record.row_events import PLAYOUT, REACTION, RowEvents
from hilserver.record.run import recorded_command
from hilserver.rig.build import Rig
from hilserver.sequences import check
from hilserver.sequences.check import SequenceResult, Verdict
from hilserver.sequences.model import Sequence, Step
from hilserver.sequences.play import Collector, Play
from hilserver.service.loop_commands import loop_command
from hilserver.simulation.replay import ComputedRows, replay_log
from hilserver.tick.codes import CommandKind
from hilserver.tick.row import command_in, header

TIME_TOLERANCE = 1.0
"""Permitted deviation of a step's time in a log, s, relative to the first step."""

Command = tuple[float, tuple[float, ...]]
"""A command in a log: its tick, and its kind and numbers."""


def check_log(sequence: Sequence, log: Path, *, trust: bool = False) -> SequenceResult:
    """Find a sequence in a log, replay the run from its recorded inputs, and check the expectations against the replay.

    Faults are not searched for: they are contained in the recorded inputs. ``trust`` as for `replay_log`.
    Raises RecordError if the log can't be used, HilserverError if it does not contain the sequence.
    """
    began = time.perf_counter()
    collected: list[Collector] = []
    rigs: list[Rig] = []
    reactions: list[RowEvents] = []

    commands, names = _commands(log)
    reacted: list[tuple[float, Event]] = []

    def watch(computed: ComputedRows) -> None:
        if not collected:
            collected.append(Collector(computed.rig, sequence))
            rigs.append(computed.rig)
            reactions.append(RowEvents(computed.rig.layout.names))
        armed = names.get(int(command_in(computed.command).sequence))
        fired = reactions[0].find(computed.rows, {0: [armed]} if armed is not None else {})
        reacted.extend((float(header(computed.rows[row]).tick), event) for row, event in fired)
        collected[0].add(computed.rows[:, collected[0].columns(computed.packed.names)])

    replayed = replay_log(log, watch=watch, trust=trust)
    if not collected:
        raise HilserverError(f"{log}: no part of it can be replayed.")
    rig = rigs[0]
    dt = 1.0 / rig.settings.loop.rate
    steps = [step for step in sequence.steps if not step.refused]
    found = _found(steps, commands, rig, dt)
    if not found:
        raise HilserverError(
            f"{log}: it does not contain the steps of {sequence.file} in this order and at these times."
        )
    first = found[0] - steps[0].at / dt
    play = Play(sequence)
    for step, tick in zip(steps, found, strict=True):
        play.note(step, (tick - first) * dt, "")
    for tick, event in reacted:
        if tick >= first:
            play.note_event(event, (tick - first) * dt)
    for step in sequence.steps:
        if step.refused:
            text = "refused commands are not always logged."
            play.verdicts.append(Verdict(step.name or step.title, check.SKIPPED, text))
    recorded = collected[0].recorded(first, dt)
    if not replayed.same_program:
        where = f"replayed with another version: {log}"
    else:
        where = f"replayed: {log}"
    return play.result(where, recorded, rig.circuit.source, log=str(log), took=time.perf_counter() - began)


def _commands(log: Path) -> tuple[list[Command], dict[int, Event]]:
    """All commands of a log with their ticks, except new values of inputs; by number, those that arm reactions."""
    found, reactions = [], {}
    reader = LogReader(log)
    for batch in reader.batches():
        ticks = batch.column("tick")
        for row, event in batch.events:
            if event.get("kind") == "command":
                order = command_in(recorded_command(event, reader.header))
                if order.kind != CommandKind.SET_INPUT:
                    kind = tuple(map(float, (order.kind, order.a, order.b)))
                    found.append((float(ticks[row - batch.start]), kind))
                    if REACTION in event or PLAYOUT in event:
                        reactions[int(order.sequence)] = event
    return found, reactions


def _found(steps: list[Step], commands: list[Command], rig: Rig, dt: float) -> list[float]:
    """Ticks of the steps in the last run of the sequence; empty if it is not in the log."""
    if not steps or any(isinstance(step.command, SetInput) for step in steps):
        raise HilserverError(
            "a sequence is identified in a log by its steps: set inputs under [inputs], arm the rig by a step."
        )
    wanted = [_record(step, rig) for step in steps]
    for start in range(len(commands) - 1, -1, -1):
        if _same(commands[start][1], wanted[0]):
            first = commands[start][0] - steps[0].at / dt
            ticks = []
            for step, record in zip(steps, wanted, strict=True):
                due = first + step.at / dt
                near = [
                    tick
                    for tick, other in commands[start:]
                    if _same(other, record) and abs(tick - due) * dt <= TIME_TOLERANCE and tick not in ticks
                ]
                if not near:
                    break
                ticks.append(min(near, key=lambda tick: abs(tick - due)))
            else:
                return ticks
    return []


_KINDS: dict[str, int] = {
    commands.React.name: CommandKind.REACT_THEN,
    commands.Release.name: CommandKind.RELEASE,
    commands.BeginPlayout.name: CommandKind.PLAY,
    commands.EndPlayout.name: CommandKind.PLAY_END,
}
"""The last command to the loop, for those that are several."""


def _record(step: Step, rig: Rig) -> tuple[float, ...]:
    """What the loop receives of a step; of switches, reactions and playouts only the kind."""
    if isinstance(step.command, CircuitCommand):
        return (float(CommandKind.SWAP),)
    if (kind := _KINDS.get(step.command.name)) is not None:
        return (float(kind),)
    record = loop_command(rig, step.command)
    return (float(record.kind), record.first, record.second)


def _same(logged: tuple[float, ...], wanted: tuple[float, ...]) -> bool:
    return logged[: len(wanted)] == wanted
