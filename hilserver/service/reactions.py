"""Reactions of a rig: their commands, converted into records for the loop, which knows them only by their numbers."""

from __future__ import annotations

from collections.abc import Mapping

from hilserver.circuit.pack import PackedCircuit
from hilserver.errors import shown
from hilserver.numerics.arrays import Floats
from hilserver.protocol.commands import ENDING, React, Release
from hilserver.protocol.published import ReactionStatus
from hilserver.record.row_events import REACTION
from hilserver.rig.conditions import condition
from hilserver.rig.rig import Rig
from hilserver.rig.triggers import signal_zero
from hilserver.service.loop_command import LoopCommand
from hilserver.service.numbered import NumberedTable
from hilserver.service.refusals import invalid, number_of
from hilserver.service.row_signals import converted, signal_column
from hilserver.tick.codes import CommandKind, Reacting, ReactionState
from hilserver.tick.row import reaction_memory
from hilserver.units import difference, quantity

EDGE, REPEAT = 1.0, 2.0
"""The options of a reaction: bits of the last argument of its second command."""


class ReactionTable(NumberedTable[ReactionStatus]):
    """The names of the rig's reactions, by number. ``channels``: the row's columns by the channels' names."""

    def __init__(self, rig: Rig, channels: Mapping[str, str]) -> None:
        super().__init__(rig, channels, REACTION, rig.settings.loop.reactions)
        self._texts: dict[int, str] = {}

    def prepare(self, command: React, packed: PackedCircuit, row: Floats) -> list[LoopCommand]:
        """The two commands that arm a reaction. Raises ConfigurationError if a value is wrong, or no number is free."""
        try:
            wanted = condition(command.when)
            column, unit = signal_column(self._rig, self._channels, wanted.signal, packed)
            if unit is not None:
                wanted.require_unit(unit)
        except ValueError as error:
            raise invalid("when", str(error)) from None
        level = wanted.level.value - signal_zero(self._rig.settings, wanted.signal)
        hysteresis = converted("hysteresis", command.hysteresis, difference) if command.hysteresis else None
        if hysteresis is not None and hysteresis.unit != wanted.level.unit:
            raise invalid("hysteresis", f"has another unit than the level, {wanted.level.unit or 'a plain number'}.")
        width = hysteresis.value if hysteresis is not None else 0.0
        if width < 0.0:
            raise invalid("hysteresis", f"{shown(command.hysteresis)} is below 0.")
        hold, ramp = _seconds("hold", command.hold), _seconds("ramp", command.ramp)
        number, value = self._target(command)
        options = EDGE * command.edge + REPEAT * command.repeat
        if command.repeat and command.then in ENDING:
            raise invalid("repeat", f"is not used with {command.then}: remove it.")
        free = self._free_number(command.reaction, row)
        self._texts[free] = text = reaction_line(command)
        about = self._begin(free, command.reaction, text, then=command.then)
        place = float(free)
        when = (wanted.direction, level, width, hold)
        action = float(Reacting[command.then.upper()])
        return [
            LoopCommand(CommandKind.REACT_WHEN, place, float(column), when),
            LoopCommand(CommandKind.REACT_THEN, place, action, (number, value, ramp, options), about),
        ]

    def release(self, command: Release, row: Floats) -> list[LoopCommand]:
        """The commands that disarm a reaction, or all. Raises ConfigurationError if there is none of this name."""
        used = {number: self.name(number) for number in range(self._count) if self._state(row, number)}
        if command.reaction is not None:
            used = {number: name for number, name in used.items() if name == command.reaction}
        if not used:
            text = f'no reaction "{command.reaction}" is armed.' if command.reaction else "no reaction is armed."
            raise invalid(REACTION, text)
        return [LoopCommand(CommandKind.RELEASE, float(number)) for number in used]

    def ended(self, row: Floats) -> list[str]:
        """The names of the reactions that have ended the run and are not released yet."""
        found = range(self._count)
        return [self.name(number) for number in found if self._state(row, number) == ReactionState.ENDED]

    def _status(self, row: Floats, number: int) -> ReactionStatus:
        memory = reaction_memory(self._rig.plan, row, number)
        state, text = ReactionState(int(memory.state)), self._texts.get(number, "")
        return ReactionStatus(text=text, state=state.name, met=float(memory.held) >= 0.0)

    def _state(self, row: Floats, number: int) -> int:
        return int(reaction_memory(self._rig.plan, row, number).state)

    def _free_number(self, name: str, row: Floats) -> int:
        if self._count == 0:
            text = "the rig has no reactions: set their number in the rig file, such as [loop] reactions = 4."
            raise invalid(REACTION, text)
        used = [number for number in range(self._count) if self._state(row, number)]
        same = [number for number in used if self._names.get(number) == name]
        free = [*same, *(number for number in range(self._count) if number not in used)]
        if not free:
            text = f"all {self._count} reactions of the rig are armed: release one, or raise [loop] reactions."
            raise invalid(REACTION, text)
        return free[0]

    def _target(self, command: React) -> tuple[float, float]:
        """Number and value of the input that a reaction sets."""
        if command.input is None or command.value is None:
            return 0.0, 0.0
        inputs = self._rig.settings.inputs
        number, settings = number_of(command.input, inputs, "input"), inputs[command.input]
        low, high = settings.range
        if not low <= command.value <= high:
            raise invalid("value", f"{command.value:g} is out of range: must be {low:g} … {high:g}.")
        if settings.hold_to_run is not None and command.value != settings.initial:
            text = f"{command.input} must be held by a person (hold_to_run): a reaction can only set it to "
            raise invalid("value", f"{text}{settings.initial:g}.")
        return number, command.value


def reaction_line(command: React) -> str:
    """A reaction in one line: its condition and its action.

    >>> reaction_line(React(reaction="end", when="x > 400 mm", then="set", input="joystick", value=-0.5, ramp="0.1 s"))
    'x > 400 mm: set joystick to -0.5 in 0.1 s'
    """
    action: str = command.then
    if command.input is not None and command.value is not None:
        action = f"set {command.input} to {command.value:g}" + (f" in {command.ramp}" if command.ramp else "")
    return f"{command.when}: {action}"


def _seconds(key: str, text: str | None) -> float:
    if text is None:
        return 0.0
    found = converted(key, text, quantity)
    if found.unit != "s" or found.value < 0.0:
        raise invalid(key, f'{shown(text)} is not a time from 0 s on, such as "20 ms".')
    return found.value
