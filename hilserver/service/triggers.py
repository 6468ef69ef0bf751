"""Triggers of the recording: those of the rig file, and those that commands arm while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from hilserver.circuit.pack import PackedCircuit
from hilserver.errors import ConfigurationError, Problem, problems_of
from hilserver.protocol.commands import ArmTrigger, EndTrigger
from hilserver.protocol.published import TriggerStatus
from hilserver.record.cuts import CutTrigger
from hilserver.rig.conditions import condition
from hilserver.rig.rig import Rig
from hilserver.rig.settings import RigSettings
from hilserver.rig.triggers import (
    TriggerSettings,
    signal_columns,
    signal_zero,
    too_long_before,
)
from hilserver.service.refusals import invalid
from hilserver.service.row_signals import signal_column
from hilserver.tick.codes import Mode

MOST_TRIGGERS = 8
"""Triggers that commands may have armed at a time: the window of each is written beside the log."""
TRIGGER = "trigger"
"""Key of the name in both commands."""


@dataclass
class _Armed:
    """A trigger, and what its recorder has reported.

    ``kept``: how many of its occurrences are in complete windows; ``before``: the same of earlier recorders.
    ``since``: the tick from which on a next recorder has to look for it.
    """

    cut: CutTrigger
    is_configured: bool
    count: int = 0
    kept: int = 0
    before: int = 0
    since: int = 0
    is_writing: bool = False
    file: str | None = None
    trouble: str = ""

    @property
    def total(self) -> int:
        return self.before + self.count

    @property
    def is_done(self) -> bool:
        return bool(self.trouble) or (self.cut.once and self.total > 0)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to look for or to write."""
        return self.is_done and not self.is_writing


class TriggerTable:
    """The triggers of a rig by name. ``changed`` is called with those that the recorder must look for."""

    def __init__(self, rig: Rig, changed: Callable[[list[CutTrigger]], None] = lambda _: None) -> None:
        self._rig, self._changed = rig, changed
        self._armed = {cut.name: _Armed(cut, is_configured=True) for cut in cut_triggers(rig)}
        self._number = 0

    def arm(self, command: ArmTrigger, packed: PackedCircuit, tick: int = -1) -> None:
        """Arm a trigger, in place of one of this name that a command has armed, for what happens after ``tick``.

        Raises ConfigurationError.
        """
        settings, name = self._rig.settings, command.trigger
        if not settings.recording.enabled:
            raise invalid(TRIGGER, "the run is not recorded: set [recording] enabled = true in the rig file.")
        known = self._armed.get(name)
        if known is not None and known.is_configured:
            raise invalid(TRIGGER, f"{name} is in the rig file and always armed: choose another name.")
        waiting = [key for key, each in self._armed.items() if not (each.is_configured or each.is_over or key == name)]
        if len(waiting) >= MOST_TRIGGERS:
            raise invalid(TRIGGER, f"{MOST_TRIGGERS} triggers are armed: end one first (end_trigger).")
        wanted = _settings_of(command)
        _require_known(self._rig, wanted, packed)
        for problem in too_long_before(settings, {name: wanted}):
            raise invalid("before", problem.message)
        self._number += 1
        cut = cut_trigger(settings, name, wanted, once=not command.repeat, armed=self._number)
        cut = replace(cut, since=tick + 1)
        self._armed.pop(name, None)  # the latest is the last one
        self._armed[name] = _Armed(cut, is_configured=False, since=cut.since)
        self._forget_done()
        self._changed(self.wanted())

    def end(self, command: EndTrigger) -> None:
        """Disarm a trigger, or all that commands have armed. Raises ConfigurationError if there is none."""
        name = command.trigger
        if name is not None and (known := self._armed.get(name)) is not None and known.is_configured:
            raise invalid(TRIGGER, f"{name} is in the rig file: it can only be removed there.")
        ended = [key for key, armed in self._armed.items() if not armed.is_configured and name in (None, key)]
        if not ended:
            raise invalid(TRIGGER, f'no trigger "{name}" is armed.' if name else "no trigger is armed by a command.")
        for key in ended:
            del self._armed[key]
        self._changed(self.wanted())

    def _forget_done(self) -> None:
        """Remove the oldest triggers that are done: they are listed only as long as there is room for them."""
        live = [key for key, armed in self._armed.items() if not armed.is_configured]
        for key in [key for key in live if self._armed[key].is_over][: max(len(live) - MOST_TRIGGERS, 0)]:
            del self._armed[key]

    def wanted(self) -> list[CutTrigger]:
        """What the recorder must look for: all but single triggers that are complete from an earlier recorder."""
        return [armed.cut for armed in self._armed.values() if not (armed.cut.once and armed.before)]

    def restart(self) -> list[CutTrigger]:
        """The same for a new recorder, which is given rows that the one before has had.

        It looks for what is in no complete window yet, which is then counted anew.
        """
        for armed in self._armed.values():
            armed.before += armed.kept
            armed.cut = replace(armed.cut, since=armed.since)
            armed.count, armed.kept, armed.is_writing, armed.trouble = 0, 0, False, ""
        return self.wanted()

    def hear(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Take the recorder's report (see `TriggeredCuts.states`)."""
        for name, state in states.items():
            armed = self._armed.get(name)
            if armed is None or armed.cut.armed != state["armed"]:  # it was ended or armed anew meanwhile
                continue
            armed.count, armed.kept, armed.since = int(state["count"]), int(state["kept"]), int(state["since"])
            armed.is_writing, armed.trouble = bool(state["writing"]), str(state["trouble"])
            armed.file = state["file"] or armed.file

    def status(self) -> dict[str, TriggerStatus]:
        """The state of each, by name."""
        return {name: _status(armed) for name, armed in self._armed.items()}


def _status(armed: _Armed) -> TriggerStatus:
    return TriggerStatus(
        text=armed.cut.text,
        state="WRITING" if armed.is_writing else "DONE" if armed.is_done else "ARMED",
        count=armed.total,
        once=armed.cut.once,
        configured=armed.is_configured,
        file=armed.file,
        trouble=armed.trouble or None,
    )


def _settings_of(command: ArmTrigger) -> TriggerSettings:
    """The same as in a rig file. Raises ConfigurationError."""
    given = command.model_dump(exclude={"id", "expires", TRIGGER, "repeat"}, exclude_none=True)
    try:
        return TriggerSettings.model_validate(given)
    except ValidationError as error:
        raise ConfigurationError(problems_of(error, given, names=TriggerSettings.model_fields)) from None


def _require_known(rig: Rig, trigger: TriggerSettings, packed: PackedCircuit) -> None:
    """Raise ConfigurationError if its condition is about what neither rig nor circuit have, or in another unit."""
    if trigger.when is None:
        return
    wanted = condition(trigger.when)
    try:
        _, unit = signal_column(rig, signal_columns(rig.settings), wanted.signal, packed)
        if unit is not None:
            wanted.require_unit(unit)
    except ValueError as error:
        raise ConfigurationError([Problem(str(error), "when")]) from None


def cut_triggers(rig: Rig) -> list[CutTrigger]:
    """The triggers of the rig file, as the recorder takes them."""
    return [cut_trigger(rig.settings, name, each) for name, each in rig.settings.recording.triggers.items()]


def cut_trigger(
    settings: RigSettings, name: str, trigger: TriggerSettings, *, once: bool = False, armed: int = 0
) -> CutTrigger:
    """A trigger as the recorder takes it (see `CutTrigger`)."""
    rate = settings.loop.rate
    text = trigger.when or trigger.mode or trigger.event or ""
    more: dict[str, Any] = {"event": trigger.event or "", "once": once, "armed": armed}
    if trigger.mode is not None:
        more["mode"] = int(Mode[trigger.mode])
    if trigger.when is not None:
        wanted = condition(trigger.when)
        level = wanted.level.value - signal_zero(settings, wanted.signal)
        width = trigger.hysteresis.value if trigger.hysteresis is not None else 0.0
        edge = "either" if trigger.either else "rising" if wanted.direction > 0.0 else "falling"
        column = signal_columns(settings).get(wanted.signal, wanted.signal)
        more |= {"column": column, "edge": edge, "level": level, "hysteresis": width}
        text += ", either way" if trigger.either else ""
    return CutTrigger(name, text, round(trigger.before * rate), round(trigger.after * rate), **more)
