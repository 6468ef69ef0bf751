"""The recorder process of a run, started again with a new log wherever it ends before the run does."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from hilserver.errors import HilserverError
from hilserver.realtime.shared import LoopMemory
from hilserver.record.format import LogHeader, encode
from hilserver.record.recorder import CIRCUIT_VERSION
from hilserver.record.run import run_header
from hilserver.rig.config import RecordingSettings
from hilserver.rig.load import Rig
from hilserver.service.children import Child, ChildFailed, all_ready
from hilserver.service.operator import Running

_log = logging.getLogger(__name__)
FIRST_DELAY, LONGEST_DELAY, STABLE_AFTER = 0.2, 60.0, 5.0
"""Seconds before the recorder is started again: the first time, at most; after how long a run it is a first time."""


class Recording:
    """The recorder and its log. ``running`` tells the circuit that the loop runs, for the header of a new log."""

    def __init__(
        self, rig: Rig, memory: LoopMemory, folder: Path, program: str, running: Callable[[], Running]
    ) -> None:
        self.log_file: Path | None = None
        """The log that is being written."""
        self.recorder: Child | None = None
        self._rig = rig
        self._memory = memory
        self._folder = folder
        self._program = program
        self._running = running

    async def start(self) -> Child:
        """Start a recorder with a new log; it is ready later. Raises HilserverError where the log has no place."""
        settings, name = self._rig.settings.recording, self._rig.settings.name
        log = _unused(_made(log_folder(settings)) / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}_{name}.arrow")
        header_file = self._folder / "header.json"
        header_file.write_text(encode(self._header().model_dump()))
        arguments = (str(self._memory.segment.path), str(header_file), str(log), str(int(settings.max_megabytes * 1e6)))
        self.recorder = await Child.start("recorder", "hilserver.record.recorder", *arguments)
        self.log_file = log
        return self.recorder

    def _header(self) -> LogHeader:
        """The header of a log that begins with the circuit that runs now."""
        running = self._running()
        rig = dataclasses.replace(self._rig, circuit=running.circuit, packed=running.packed)
        header = run_header(rig, self._program, "real time")
        return header.model_copy(update={"extra": {**header.extra, CIRCUIT_VERSION: running.version}})

    async def keep(self, report: Callable[[str | None, str], None]) -> None:
        """Start the recorder again whenever it ends. ``report`` gets the trouble, if any, and what happened."""
        delay = FIRST_DELAY
        while self.recorder is not None:
            began = time.monotonic()
            reason = await self.recorder.wait_ended()
            if self._memory.info.loop_pid == 0:  # the run is over
                return
            delay = FIRST_DELAY if time.monotonic() - began >= STABLE_AFTER else min(2 * delay, LONGEST_DELAY)
            report("not recorded", f"not recorded: the recorder ended ({reason}). Another one is started.")
            await asyncio.sleep(delay)
            while not await self._started_again():
                delay = min(2 * delay, LONGEST_DELAY)
                await asyncio.sleep(delay)
            report(None, f"recorded again, in {self.log_file}")

    async def _started_again(self) -> bool:
        try:
            await all_ready(await self.start())
        except HilserverError as error:
            _log.warning("%s", error)
            if isinstance(error, ChildFailed):
                self._remove_stub()
            return False
        return True

    def _remove_stub(self) -> None:
        """Remove the log of a recorder that could not even write its header."""
        assert self.log_file is not None
        if self.log_file.exists() and self.log_file.stat().st_size == 0:
            self.log_file.unlink()

    async def end(self) -> None:
        """End the recorder, with everything written."""
        if self.recorder is not None:
            await self.recorder.stop()


def log_folder(settings: RecordingSettings) -> Path:
    """Where logs go: the folder in the rig file, else the logs directory of a systemd service, else ``logs``."""
    return Path(settings.folder or os.environ.get("LOGS_DIRECTORY", "").split(":")[0] or "logs")


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HilserverError(f"{folder}: the folder of the logs can't be created: {error.strerror}.") from error
    return folder


def _unused(path: Path) -> Path:
    """The path, or one with a number behind it where a log of that name exists."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    return free
