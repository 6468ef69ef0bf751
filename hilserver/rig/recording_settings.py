"""The rig file's ``[recording]``: what is recorded, where, and what is kept."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, StrictBool, StrictInt

from hilserver.components.base import Datasheet
from hilserver.rig.references import Name, Text
from hilserver.rig.triggers import TriggerSettings
from hilserver.units import Number, Time


class KeepSettings(Datasheet):
    """Limits for the recordings of a rig; beyond them the oldest files are removed. Without a limit all are kept."""

    age: Time | None = Field(
        default=None,
        examples=["30 d"],
        gt=0,
        description="files that were last written longer ago than this are removed",
    )
    files: StrictInt | None = Field(default=None, ge=1, description="maximum number of files")
    gigabytes: Number | None = Field(
        default=None, gt=0, description="maximum size in total, including the running recording"
    )
    running: StrictBool = Field(
        default=True, description="keep all files of the running recording; false: only the one being written"
    )


class RecordingSettings(Datasheet):
    """The full-rate log."""

    folder: Text | None = Field(
        default=None,
        description="relative to the working folder; default: $LOGS_DIRECTORY (systemd), else logs",
    )
    enabled: StrictBool = Field(default=True, description="record every run")
    max_megabytes: Number = Field(default=1000.0, gt=0, description="a new file is started beyond this size")
    max_duration: Time | None = Field(
        default=None, examples=["1 h"], gt=0, description="a new file is started after this time"
    )
    compression: Literal["none", "lz4", "zstd"] = Field(
        default="lz4",
        description="compression of the log: lz4 needs little more than half the space, at negligible cost; zstd needs "
        "40 %, but in blocks of up to 2000 ticks instead of 100, and a damaged block is lost; none: for programs that "
        "can read neither",
    )
    signals: tuple[Text, ...] = Field(
        default=(),
        examples=[["channel.*", "valve.*.command", "circuit.*"]],
        description="what is recorded in addition to what a replay needs, as columns of the log with * for any "
        "characters; default: everything",
    )
    min_free_megabytes: Number = Field(
        default=500.0, ge=0, description="with less free disk space than this nothing is recorded"
    )
    keep: KeepSettings = KeepSettings()
    triggers: dict[Name, TriggerSettings] = Field(
        default_factory=dict,
        description="windows of the log that are kept in files of their own, by name, in the folder cuts",
    )
    buffer: Time | None = Field(
        default=None,
        examples=["60 s"],
        ge=2,
        le=3600,
        description="time for which rows are kept in memory while the disk is slow or the recorder is restarted; "
        "default: 20 s, less if that takes more than 128 MB",
    )
    lost_after: Time = Field(
        default="3 s", ge=2, le=60, description="time without a recorded row after which the recording counts as lost"
    )
    action: Literal["warn", "ramp", "trip"] = Field(
        default="warn",
        description="when the recording is lost; warn: report only; ramp: to null in stop_time, mode SAFE; trip: "
        "FAULT, latched. With ramp and trip, arm and start are refused while nothing is recorded",
    )
