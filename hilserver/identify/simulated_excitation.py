"""The excitation of a simulated rig, in lockstep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hilserver.errors import HilserverError
from hilserver.identify.excitation import SMALLEST, Extent, RunEnded, by_hand, excite, jog_renewal
from hilserver.identify.recorded import Recording, columns_needed, recording_of_columns
from hilserver.numerics.arrays import Floats
from hilserver.rig.end_of_running import columns_of, ends_of_running
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.codes import CommandKind, Mode

REPEATS = 3
"""How often an excitation that a limit has ended is repeated with smaller commands: simulated machines take no harm."""


class LockstepBench:
    """A simulated rig under manual commands (see `by_hand`), tick by tick.

    Raises HilserverError if it does not start.
    """

    reaction = 0.0

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._run = LockstepRun(rig)
        self._names = columns_needed(rig)
        self._kept: list[dict[str, NDArray[Any]]] = []
        self._highest: dict[str, float] = {}
        self._commands: dict[str, float] = {}
        self._keep(self._run.arm_and_start())

    def hold(self, commands: Mapping[str, float], seconds: float) -> None:
        """Jog the valves for this number of seconds; jogs are renewed before they expire."""
        ticks = round(seconds / self._run.dt)
        renewed = round(jog_renewal(self.rig) / self._run.dt)
        while ticks > 0:
            for name, command in commands.items():
                self._run.command(CommandKind.JOG, float(list(self.rig.settings.valves).index(name)), command)
            count = max(min(ticks, renewed), len(commands))
            rows = self._run.run(count)
            self._keep(rows)
            ticks -= count
            if self._run.mode != "RUNNING":
                how, after = self._how_ended(rows), f"{self._run.tick * self._run.dt:.1f} s"
                raise RunEnded(f"{self.rig.file}: the sequence of commands has ended in mode {how} after {after}.")

    def _how_ended(self, rows: Floats) -> str:
        """The mode after RUNNING with the cause, as far as these rows show one."""
        ends = ends_of_running(self.rig, columns_of(self.rig, rows), Mode.RUNNING)
        return next((how for _, how in ends), self._run.mode)

    def _keep(self, rows: Floats) -> None:
        self._kept.append({name: self.rig.layout.values(rows, name).copy() for name in self._names})
        for name in self.rig.settings.channels:
            highest = float(rows[:, self.rig.layout.column(f"channel.{name}")].max())
            self._highest[name] = max(self._highest.get(name, -np.inf), highest)

    def now(self, channel: str) -> float:
        """The latest value of a channel, SI."""
        return float(self._run.row[self.rig.layout.column(f"channel.{channel}")])

    def highest(self, channel: str) -> float:
        """The highest value of a channel since the last call, SI."""
        return self._highest.pop(channel, -np.inf)

    def recording(self) -> Recording:
        """Commands and measured values so far."""
        columns = {name: np.concatenate([part[name] for part in self._kept]) for name in self._names}
        return recording_of_columns(self.rig, columns, "a run of the simulated rig")


def recorded_excitation(
    rig: Rig, valves: list[str], extent: Extent, *, tell: Callable[[str], object] = lambda _: None
) -> Recording:
    """Move the valves of a simulated rig, and those that move with them, in lockstep.

    An excitation that is ended by a limit is repeated from the start with smaller commands; ``tell`` gets a sentence on
    this. Raises HilserverError for a real rig, RunEnded if smaller commands don't help.
    """
    real = [device.name for device in rig.devices if not device.is_simulated]
    if real:
        raise HilserverError(
            f"{rig.file}: device {real[0]} is not simulated. Move the real machine with --drive, or use --log with a "
            "log in which the valves move over a wide range."
        )
    for repeated in range(REPEATS + 1):
        bench = LockstepBench(by_hand(rig, extent.largest))
        try:
            ended = excite(rig, bench, valves, extent)
        except RunEnded as error:
            if repeated == REPEATS or error.smaller < SMALLEST:
                raise
            extent = replace(extent, largest=error.smaller)
            tell(f"{error} The sequence is repeated with this value.")
        else:
            break
    if ended:
        tell(ended)
    return bench.recording()
