"""Monitors that the rows of the loop arrive in the log: a rig that runs without being recorded immediately causes an
alarm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hilserver.protocol.commands import Arm, Command, Start
from hilserver.rig.recording_settings import RecordingSettings
from hilserver.service.rig_stop import Execute, RigStop
from hilserver.service.silence import LOOK, SilenceTimer
from hilserver.service.telemetry import TelemetryReader
from hilserver.service.troubles import Tell
from hilserver.tick.codes import Mode
from hilserver.tick.row import header

SOURCE = "recording"


class RecordingWatch:
    """Reports that nothing is recorded although the loop runs, and acts as the rig file says.

    ``last_tick``: the last tick that is known to be in a log. ``execute`` carries out a command, ``refuse_waiting``
    refuses those that wait, with a reason.
    """

    def __init__(
        self,
        settings: RecordingSettings,
        telemetry: TelemetryReader,
        last_tick: Callable[[], int],
        execute: Execute,
        refuse_waiting: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._telemetry = telemetry
        self._last_tick = last_tick
        self._stop = RigStop(telemetry, execute)
        self._refuse_waiting = refuse_waiting
        self._silence = SilenceTimer()
        self._lost = ""
        self._has_acted = False

    def refusal(self, command: Command) -> str | None:
        """Why an `arm` or `start` is refused: nothing is recorded, and the rig file requires it."""
        if self._lost and self._settings.action != "warn" and isinstance(command, Arm | Start):
            return f"{self._lost}. This rig is operated only while it is recorded (recording.action in the rig file)."
        return None

    async def keep(self, tell: Tell) -> None:
        """Watch for as long as the run lasts."""
        while True:
            await asyncio.sleep(LOOK)
            row = self._telemetry.latest()
            if row is None:
                continue
            mode, lost = header(row).mode, self._look(header(row).tick)
            if lost and not self._lost:
                shown = Mode(int(mode)).name if mode in (Mode.ARMED, Mode.RUNNING) else ""
                tell(SOURCE, f"{shown} but {lost}".removeprefix(" but "), lost)
            elif self._lost and not lost:
                tell(SOURCE, None, "the rows of the loop arrive in the log again")
            self._lost = lost
            self._has_acted = self._has_acted and bool(lost)
            if lost and mode in (Mode.ARMED, Mode.RUNNING) and not self._has_acted:
                await self._act(lost, tell)

    def _look(self, tick: float) -> str:
        """Why the recording counts as lost; empty while rows arrive in the log, or there are none."""
        last = self._last_tick()
        if tick <= last:
            self._silence = SilenceTimer()
            return ""
        if self._silence.update(last) <= self._settings.lost_after:
            return ""
        return f"not recorded: no row has reached the log for more than {self._settings.lost_after:g} s"

    async def _act(self, lost: str, tell: Tell) -> None:
        """Ramp to null, or trip; nothing that was sent before starts the rig again."""
        if self._settings.action == "warn":
            return
        self._refuse_waiting(f"{lost}.")
        done = await self._stop.stop(self._settings.action, lost)
        self._has_acted = bool(done)
        if done:
            tell(SOURCE, lost, f"{lost}; {done} when it is recorded again")
