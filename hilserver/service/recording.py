"""The recording of a run: its recorder process, restarted with a new log where it ends before the run.

Nothing is recorded while the disk is nearly full, and old recordings are removed if the rig file says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.errors import HilserverError
from hilserver.protocol.published import RecordingStatus
from hilserver.realtime.shared import LoopMemory
from hilserver.record.cuts import CutTrigger
from hilserver.record.folder import LogFile, files_of, new_log, next_number, remove_files, superfluous
from hilserver.record.forecast import log_folder
from hilserver.record.format import LogHeader, encode, later_parts
from hilserver.record.reader import last_batch
from hilserver.record.recorder import CIRCUIT_VERSION, PREVIOUS_TICK, Limits, no_room
from hilserver.record.run import rows_per_file, run_header
from hilserver.rig.rig import Rig
from hilserver.service.backoff import Backoff
from hilserver.service.children import Child, ChildFailed, Prepared, all_ready
from hilserver.service.running_circuit import RunningCircuit
from hilserver.service.silence import LOOK, SilenceTimer
from hilserver.service.telemetry import TelemetryReader
from hilserver.service.triggers import TriggerTable
from hilserver.service.troubles import Tell
from hilserver.tick.row import header, headers

_log = logging.getLogger(__name__)
LOOK_FOR_ROOM = 2.0
"""Seconds between two checks of a disk that is nearly full."""
MORE_ROOM = 1.1
"""Factor of the free space at which recording ended, above which it resumes."""
TIDY_EVERY = 60.0
"""Seconds between two checks for old recordings; each new file causes one, too."""
HUNG_AFTER = 0.5
"""Fraction of the time for which the ring has space, after which a recorder that writes nothing is killed."""
SLOW = 3.0
"""The same in seconds, at least: a write may take this long on a busy disk."""
FILES_KEPT = 1000
"""Files of the recording that are remembered."""
CLOCK_JUMP = 3600.0
"""Change of the system clock, s, after which it is not trusted: then no recording is removed for its age."""
RECORDER, OLD_LOGS, CUTS = "recorder", "old logs", "triggered recordings"


@dataclass
class _Written:
    """A file of the recording, and the last tick that is known to be in it (-1: none)."""

    path: Path
    tick: int = -1
    status: os.stat_result | None = None
    """Of the file as it was recorded: another one in its place does not contain its rows."""

    def __post_init__(self) -> None:
        self.identify()

    def identify(self) -> None:
        """Note which file it is, once there is one."""
        if self.status is None:
            with contextlib.suppress(OSError):
                self.status = self.path.stat()

    def exists(self) -> bool:
        """Whether the file is still in its place."""
        try:
            present = self.path.stat()
        except OSError:
            return False
        return self.status is None or os.path.samestat(present, self.status)

    def read_last_tick(self) -> None:
        """Take the last tick from the file, which may have more rows than its recorder has reported."""
        with contextlib.suppress(HilserverError, OSError):  # it was just started
            if (batch := last_batch(self.path)) is not None:
                self.tick = int(batch.column("tick")[-1].as_py())


class NoRoom(HilserverError):
    """The disk is nearly full."""


class RecorderProcess:
    """The recorder process and its log. ``ran`` returns the circuit of a version, for the header of a new log.

    Its reports are its heartbeat: one that hangs is killed while the ring still has room for what it has not written.
    """

    def __init__(
        self,
        rig: Rig,
        memory: LoopMemory,
        folder: Path,
        program: str,
        ran: Callable[[int], RunningCircuit],
        telemetry: TelemetryReader,
        prepared: Prepared | None = None,
    ) -> None:
        self.log_file: Path | None = None
        """The first file of the log that is being written."""
        self.recorder: Child | None = None
        self.vanished: list[Path] = []
        """Files of the recording that no longer exist, although this server has not removed them."""
        self.triggers = TriggerTable(rig, self._send_triggers)
        self._settings = rig.settings.recording
        self._rig = rig
        self._memory = memory
        self._folder = folder
        self._program = program
        self._ran = ran
        self._telemetry = telemetry
        self._prepared = prepared
        self._files: list[_Written] = []
        self._number = 0
        self._hung_after = max(HUNG_AFTER * memory.ring.capacity / rig.clock_rate, SLOW)
        telemetry.recorded = lambda: self.last_tick
        self._tell: Tell | None = None
        self._new_file = asyncio.Event()
        self._clock = _clock_offset()

    @property
    def last_tick(self) -> int:
        """The last tick that is known to be in a log; -1 for none."""
        return max((file.tick for file in self._files), default=-1)

    @property
    def _file(self) -> Path | None:
        """The file that is being written, or was last."""
        return self._files[-1].path if self._files else None

    # --- starting ----------------------------------------------------------------------------------------------------

    async def start_if_room(self) -> Child | None:
        """As `start`; None if the disk is nearly full: `keep` then waits for free space."""
        self._telemetry.recording = RecordingStatus()
        try:
            return await self.start()
        except NoRoom as error:
            self._telemetry.troubles[RECORDER] = f"not recorded: {error}"
            _log.warning("not recorded: %s", error)
            return None

    async def start(self) -> Child:
        """Start a recorder with a new log; it is ready later.

        Raises HilserverError if the folder can't be used, NoRoom where the disk is nearly full.
        """
        folder = _made(log_folder(self._settings))
        self._require_room(folder)
        self._note_vanished()
        self._note_unreported()
        for file in self._files[-2:]:
            await asyncio.to_thread(file.read_last_tick)
        log = new_log(folder, self._rig.settings.name, datetime.now(UTC))
        header_file = self._folder / "header.json"
        self._number = await asyncio.to_thread(self._next_number, folder)
        header = self._header(self._ran(await asyncio.to_thread(self._first_version)))
        header_file.write_text(encode(header.model_dump()))
        limits = Limits(
            max_bytes=int(self._settings.max_megabytes * 1e6),
            max_rows=rows_per_file(self._rig),
            min_free=int(self._settings.min_free_megabytes * 1e6),
            triggers=tuple(asdict(trigger) for trigger in self.triggers.restart()),
        )
        arguments = (str(self._memory.segment.path), str(header_file), str(log), json.dumps(asdict(limits)))
        module = "hilserver.record.recorder"
        self.recorder = await Child.start(
            "recorder", module, *arguments, heard=self._heard, prepared=self._prepared, keep_input=True
        )
        self.log_file = log
        self._files = [*self._files[-FILES_KEPT:], _Written(log)]
        self._send_triggers(self.triggers.wanted())  # one may have been armed meanwhile
        return self.recorder

    def _require_room(self, folder: Path) -> None:
        needed = self._settings.min_free_megabytes * 1e6
        free = shutil.disk_usage(folder).free
        if free < needed * (MORE_ROOM if self.recorder is not None else 1.0):
            self._telemetry.recording = RecordingStatus(free_megabytes=free / 1e6)
            raise NoRoom(f"{folder}: {no_room(free, needed)}.")

    def _first_version(self) -> int:
        """The version of the circuit in the oldest row of the ring that is in no log yet; 0 if there is none."""
        ring = self._memory.ring
        rows = np.empty((ring.capacity, ring.width))
        count, _, _ = ring.read(max(ring.published - ring.capacity, 0), rows)
        new = rows[:count][headers(rows)["tick"][:count] > self.last_tick]
        return int(header(new[0]).circuit_version) if len(new) else 0

    def _next_number(self, folder: Path) -> int:
        """Larger than those in the folder, and than the last one: a disk may be mounted there meanwhile."""
        return max(next_number(folder, self._rig.settings.name), self._number + 1)

    def _header(self, first: RunningCircuit) -> LogHeader:
        """The header of a log that starts with this circuit."""
        rig = replace(self._rig, circuit=first.circuit, packed=first.packed)
        header = run_header(rig, self._program, "real time")
        extra = {**header.extra, CIRCUIT_VERSION: first.version, PREVIOUS_TICK: self.last_tick}
        previous = self._file.name if self._file else ""
        return header.model_copy(update={"previous": previous, "number": self._number, "extra": extra})

    # --- running -----------------------------------------------------------------------------------------------------

    async def keep(self, tell: Tell) -> None:
        """Restart the recorder whenever it has ended, for as long as the run lasts."""
        self._tell = tell
        backoff = Backoff(first=0.2, longest=60.0, stable_after=5.0)
        while not self._is_over():
            began = time.monotonic()
            if self.recorder is not None:
                reason = await self._ended(self.recorder)
                self._remove_stub()
                if self._is_over():
                    return
                self._telemetry.recording = RecordingStatus()
                text = f"not recorded: the recorder ended ({reason.rstrip('.')}). Another one is started."
                tell(RECORDER, text, text)
                backoff.ended(time.monotonic() - began)
            await asyncio.sleep(backoff.delay)
            while not self._is_over() and (trouble := await self._started_again()) is not None:
                self._telemetry.troubles[RECORDER] = f"not recorded: {trouble}"
                if isinstance(trouble, NoRoom):
                    backoff.reset()
                    await asyncio.sleep(LOOK_FOR_ROOM)
                else:
                    await asyncio.sleep(backoff.ended())
            if not self._is_over():
                tell(RECORDER, None, f"recording resumed in {self.log_file}")

    async def _ended(self, recorder: Child) -> str:
        """Wait for the end of the recorder, and kill it if it hangs; returns why it ended."""
        ending, silence, killed = asyncio.create_task(recorder.wait_ended()), SilenceTimer(), ""
        try:
            while not (await asyncio.wait({ending}, timeout=LOOK))[0]:
                row, quiet = self._telemetry.latest(), silence.update(self.last_tick)
                if row is None or header(row).tick <= self.last_tick:  # there is nothing to record
                    silence = SilenceTimer()
                elif quiet > self._hung_after and not killed:
                    killed = f"it has written nothing for {quiet:.1f} s and was killed"
                    recorder.kill()
            return killed or ending.result()
        finally:
            ending.cancel()

    def _is_over(self) -> bool:
        return self._memory.info.loop_pid == 0

    async def _started_again(self) -> Exception | None:
        """Try to start the recorder; returns why that failed."""
        try:
            await all_ready(await self.start())
        except (HilserverError, OSError) as error:
            _log.warning("%s", error)
            if isinstance(error, ChildFailed):
                self._remove_stub()
            return error
        return None

    def _remove_stub(self) -> None:
        """Remove the log of a recorder that ended before it wrote its header."""
        assert self.log_file is not None
        with contextlib.suppress(OSError):
            if self.log_file.stat().st_size == 0:
                self.log_file.unlink()
                self._files.pop()

    def _note_unreported(self) -> None:
        """A recorder that was killed may have begun another file of its log without having reported it."""
        parts = [self.log_file, *later_parts(self.log_file, 0)] if self.log_file is not None else []
        if self._file in parts:
            self._files += [_Written(path) for path in parts[parts.index(self._file) + 1 :] if path is not None]

    def _note_vanished(self) -> None:
        """Forget the last files that are gone: their rows are in no log."""
        while self._files and not self._files[-1].exists():
            self.vanished.append(self._files.pop().path)

    def _heard(self, message: dict[str, Any]) -> None:
        """Take a status report of the recorder."""
        report, before = message["recording"], self._telemetry.recording or RecordingStatus()
        file = Path(report["file"])
        self._telemetry.recording = status = RecordingStatus(
            file=report["file"],
            rows=report["rows"],
            tick=report["tick"],
            lost=report["lost"],
            gap=report["gap"],
            megabytes=report["bytes"] / 1e6,
            free_megabytes=None if report["free"] is None else report["free"] / 1e6,
        )
        if file != self._file:
            self._files.append(_Written(file))
        self._files[-1].identify()
        self._files[-1].tick = report["tick"]
        if report["file"] != before.file:
            self._new_file.set()
        self.triggers.hear(report.get("triggers", {}))
        self._hear_cuts(report.get("cuts", ()), report.get("cut_trouble", ""))
        if self._tell is not None and status.gap and before.file is None:
            self._tell("gap", None, f"{status.gap} ticks before those in {file} are in no log", warn=True)
        if self._tell is not None and status.lost > before.lost:
            text = f"{status.lost - before.lost} rows of the log are lost: the disk is too slow"
            self._tell("lost rows", None, text, warn=True)

    def _send_triggers(self, triggers: Sequence[CutTrigger]) -> None:
        if self.recorder is not None and self.recorder.running:  # the next one is given them when it starts
            self.recorder.send(triggers=[asdict(trigger) for trigger in triggers])

    def _hear_cuts(self, files: Sequence[str], trouble: str) -> None:
        if self._tell is None:
            return
        for file in files:
            self._tell("cut", None, f"triggered recording: {file}")
        known = self._telemetry.troubles.get(CUTS, "")
        if trouble and trouble != known:
            self._tell(CUTS, trouble, trouble)
        elif known and not trouble:  # of the recorder before this one
            self._tell(CUTS, None, "triggered recordings are written again")

    async def end(self) -> None:
        """End the recorder, with everything written."""
        if self.recorder is not None:
            await self.recorder.stop()
        self._note_vanished()
        for file in self.vanished:
            _log.error(
                "%s no longer exists, and all rows in it are lost: it was deleted, moved or replaced, or its disk was "
                "unmounted",
                file,
            )

    # --- old recordings ----------------------------------------------------------------------------------------------

    async def tidy_up(self, tell: Tell) -> None:
        """Remove recordings beyond the limits, now and whenever a new file is started."""
        keep = self._settings.keep
        if keep.age is None and keep.files is None and keep.gigabytes is None:
            return
        while True:
            self._new_file.clear()
            try:
                gone = await asyncio.to_thread(self._remove_superfluous)
            except OSError as error:
                text = f"old recordings can't be removed: {error}"
                tell(OLD_LOGS, text, text)
            else:
                self._telemetry.troubles.pop(OLD_LOGS, None)
                if gone:
                    size = sum(file.size for file in gone) / 1e6
                    names = " … ".join(dict.fromkeys((gone[0].path.name, gone[-1].path.name)))
                    tell(OLD_LOGS, None, f"old recordings removed: {len(gone)} files, {size:.0f} MB ({names})")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TIDY_EVERY):
                    await self._new_file.wait()

    def _remove_superfluous(self) -> list[LogFile]:
        """Remove the files beyond the limits; returns them."""
        keep = self._settings.keep
        if abs(_clock_offset() - self._clock) > CLOCK_JUMP:
            keep = keep.model_copy(update={"age": None})
        files = files_of(log_folder(self._settings), self._rig.settings.name)
        gone = remove_files(files, superfluous(files, keep, time.time(), self._file))
        self._files = [file for file in self._files if file.path not in {removed.path for removed in gone}]
        return gone


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HilserverError(f"{folder}: the folder of the logs can't be created: {error.strerror}.") from error
    return folder


def _clock_offset() -> float:
    """System clock minus monotonic clock, s: changes where the system clock is set."""
    return time.time() - time.monotonic()
