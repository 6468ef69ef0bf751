"""Hold-to-run inputs: they return to rest unless their value is renewed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from hilserver.protocol.commands import Command, SetInput
from hilserver.rig.input_settings import InputSettings
from hilserver.service.rig_stop import Execute


class HeldInputs:
    """The inputs of a rig that have ``hold_to_run``. ``execute`` carries out a command."""

    def __init__(self, inputs: Mapping[str, InputSettings], execute: Execute) -> None:
        self._inputs = inputs
        self._execute = execute
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._releasing: set[asyncio.Task[None]] = set()

    def follow(self, command: Command) -> None:
        """Note a command that was carried out."""
        if not isinstance(command, SetInput):
            return
        settings = self._inputs[command.input]
        if (timer := self._timers.pop(command.input, None)) is not None:
            timer.cancel()
        if settings.hold_to_run is not None and command.value != settings.initial:
            loop = asyncio.get_running_loop()
            until = settings.hold_to_run - settings.delay  # so that it is at rest within hold_to_run
            self._timers[command.input] = loop.call_later(until, self._release, command.input)

    def _release(self, name: str) -> None:
        del self._timers[name]
        task = asyncio.create_task(self._return(name))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    async def _return(self, name: str) -> None:
        """Set the input to its value at rest; refused where the rig is not RUNNING, and the input at rest already."""
        await self._execute(SetInput(input=name, value=self._inputs[name].initial))

    def end(self) -> None:
        """Forget all inputs."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
