"""Playouts of a rig: their commands, converted into records for the loop, and their state."""

from __future__ import annotations

from collections.abc import Mapping
from math import degrees, hypot, radians

import numpy as np

from hilserver.circuit.pack import PackedCircuit
from hilserver.errors import HilserverError
from hilserver.numerics.arrays import Floats
from hilserver.protocol.commands import BeginPlayout, EndPlayout
from hilserver.protocol.published import PlayoutStatus
from hilserver.record.row_events import PLAYOUT
from hilserver.rig.rig import Rig
from hilserver.rig.triggers import signal_zero
from hilserver.service.loop_command import LoopCommand
from hilserver.service.numbered import NumberedTable
from hilserver.service.refusals import invalid, number_of, refusal_text
from hilserver.service.row_signals import converted, signal_column
from hilserver.tick.codes import CommandKind, Mode, PlayoutState, ResultCode
from hilserver.tick.playout import LEAST_TICKS, MOST_TICKS
from hilserver.tick.row import header, playout_memory
from hilserver.units import difference, quantity

ACTIVE = (PlayoutState.WAITING, PlayoutState.LEARNING, PlayoutState.CONTROLLED, PlayoutState.FADING)


class PlayoutTable(NumberedTable[PlayoutStatus]):
    """The names of the rig's playouts, by number. ``channels``: the row's columns by the channels' names."""

    def __init__(self, rig: Rig, channels: Mapping[str, str]) -> None:
        super().__init__(rig, channels, PLAYOUT, rig.settings.loop.playouts)

    def prepare(self, command: BeginPlayout, packed: PackedCircuit, row: Floats) -> list[LoopCommand]:
        """The three commands that begin a playout.

        Raises ConfigurationError if a value is wrong, or none is free, HilserverError if the rig is not in RUNNING.
        """
        try:
            column, unit = signal_column(self._rig, self._channels, command.channel, packed)
        except ValueError as error:
            raise invalid("channel", str(error)) from None
        wanted = converted("amplitude", command.amplitude, difference)
        if unit is not None and wanted.unit != unit:
            raise invalid("amplitude", f"{command.channel} is measured in {unit or 'no unit'}.")
        if wanted.value <= 0.0:
            raise invalid("amplitude", f"{command.amplitude} is not above 0.")
        ticks, (number, limit) = self._ticks(command.frequency), self._input(command)
        if command.drive > limit:
            raise invalid("drive", f"{command.drive:g} is above the limit of {limit:g}.")
        if command.counted >= command.cycles:
            raise invalid("counted", f"{command.counted} of {command.cycles} cycles are done already.")
        centre, centre_gain = self._centre(command, unit)
        if (mode := Mode(int(header(row).mode))) != Mode.RUNNING:  # before its number takes the name
            raise HilserverError(refusal_text(command, ResultCode.WRONG_MODE, mode.name))
        self._require_at_rest(command.input, int(number), row)
        free = self._free_number(command.playout, row)
        text = f"{command.channel} ± {command.amplitude} at {command.frequency} by {command.input}"
        about = self._begin(free, command.playout, text)
        place, phase = float(free), radians(command.phase)
        target = (float(column), float(ticks), wanted.value, phase)
        drive = (command.drive, limit, command.gain, command.tolerance)
        counts = (float(command.counted), float(command.block), centre, centre_gain)
        return [
            LoopCommand(CommandKind.PLAY_TARGET, place, number, target),
            LoopCommand(CommandKind.PLAY_DRIVE, place, command.mean, drive),
            LoopCommand(CommandKind.PLAY, place, float(command.cycles), counts, about),
        ]

    def end(self, command: EndPlayout, row: Floats) -> list[LoopCommand]:
        """The commands that end a playout, or all. Raises ConfigurationError if there is none of this name."""
        playing = {n: self.name(n) for n in range(self._count) if self._state(row, n) in ACTIVE}
        chosen = [n for n, name in playing.items() if command.playout in (None, name)]
        if not chosen:
            what = f'playout "{command.playout}"' if command.playout is not None else "playout"
            raise invalid(PLAYOUT, f"no {what} is running.")
        return [LoopCommand(CommandKind.PLAY_END, float(n)) for n in chosen]

    def _state(self, row: Floats, number: int) -> int:
        return int(playout_memory(self._rig.plan, row, number).state)

    def _status(self, row: Floats, number: int) -> PlayoutStatus:
        p = playout_memory(self._rig.plan, row, number)
        wanted, measured = complex(p.wanted_sin, p.wanted_cos), complex(p.measured_sin, p.measured_cos)
        return PlayoutStatus(
            state=PlayoutState(int(p.state)).name,
            cycles=int(p.count),
            wanted=int(p.cycles),
            frequency=self._rig.settings.loop.rate / float(p.ticks),
            amplitude=abs(measured),
            target=abs(wanted),
            phase_error=degrees(float(np.angle(measured / wanted))) if measured else 0.0,
            drive=hypot(p.drive_sin, p.drive_cos),
        )

    def _ticks(self, text: str) -> int:
        frequency = converted("frequency", text, quantity)
        if frequency.unit != "1/s" or frequency.value <= 0.0:
            raise invalid("frequency", f'"{text}" is not a frequency, such as "2 Hz".')
        rate = self._rig.settings.loop.rate
        slowest, fastest = rate / MOST_TICKS, rate / LEAST_TICKS
        if not slowest <= frequency.value <= fastest:
            limits = f"between {slowest:g} and {fastest:g} Hz"
            raise invalid("frequency", f"{text} is out of range: it must be {limits} at this loop rate.")
        return round(rate / frequency.value)

    def _require_at_rest(self, name: str, number: int, row: Floats) -> None:
        """Raise ConfigurationError if a playout or the work cycle moves this input."""
        for other in range(self._count):
            is_active = self._state(row, other) in ACTIVE
            if is_active and int(playout_memory(self._rig.plan, row, other).input) == number:
                text = f"{name} is moved by playout {self.name(other)}: end it first (end_playout)."
                raise invalid("input", text)
        cycle = self._rig.cycle
        if header(row).cycle_time >= 0.0 and cycle is not None and name in cycle.inputs:
            raise invalid("input", f"{name} is moved by the work cycle: stop it first (cycle).")

    def _input(self, command: BeginPlayout) -> tuple[float, float]:
        """Number of the input, and the largest amplitude of its drive."""
        inputs = self._rig.settings.inputs
        number, settings = number_of(command.input, inputs, "input"), inputs[command.input]
        low, high = settings.range
        if settings.hold_to_run is not None:
            raise invalid("input", f"{command.input} must be held by a person (hold_to_run).")
        room = min(high - command.mean, command.mean - low)
        if room <= 0.0:
            raise invalid("mean", f"{command.mean:g} is not within the input's range {low:g} … {high:g}.")
        limit = room if command.limit is None else command.limit
        if limit > room:
            raise invalid("limit", f"{limit:g} about the mean leaves the input's range {low:g} … {high:g}.")
        return number, limit

    def _centre(self, command: BeginPlayout, unit: str | None) -> tuple[float, float]:
        if command.centre is None:
            return 0.0, 0.0
        centre = converted("centre", command.centre, quantity)
        if unit is not None and centre.unit != unit:
            raise invalid("centre", f"{command.channel} is measured in {unit or 'no unit'}.")
        per = converted("centre_per", command.centre_per or "", difference)
        if per.unit != centre.unit or per.value == 0.0:
            raise invalid("centre_per", "must be a change of the channel, other than 0.")
        return centre.value - signal_zero(self._rig.settings, command.channel), 1.0 / per.value

    def _free_number(self, name: str, row: Floats) -> int:
        if self._count == 0:
            text = "the rig has no playouts: set their number in the rig file, such as [loop] playouts = 1."
            raise invalid(PLAYOUT, text)
        playing = [n for n in range(self._count) if self._state(row, n) in ACTIVE]
        if any(self.name(n) == name for n in playing):
            raise invalid(PLAYOUT, f'playout "{name}" is running: end it first (end_playout).')
        same = [n for n in range(self._count) if n not in playing and self._names.get(n) == name]
        free = [*same, *(n for n in range(self._count) if n not in playing)]
        if not free:
            raise invalid(
                PLAYOUT, f"all {self._count} playouts of the rig are running: end one, or raise their number."
            )
        return free[0]
