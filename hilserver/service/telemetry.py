"""Rows, state of the server and events, read from the loop's ring without disturbing the loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Literal

import numpy as np

from hilserver.numerics.arrays import Floats
from hilserver.protocol.commands import ENDING
from hilserver.protocol.event_text import number_of_ticks
from hilserver.protocol.published import (
    DurationFigures,
    Event,
    LoopStatus,
    RecordingStatus,
    ServerState,
    TriggerStatus,
)
from hilserver.realtime.devices import ADVICE
from hilserver.realtime.shared import LoopMemory
from hilserver.realtime.timing import Distribution, LoopTiming, wake_up_delay, work_before
from hilserver.record.row_events import DISARMED, RowEvents, row_event_text
from hilserver.rig.end_of_running import cause_of_end, columns_of, has_ended
from hilserver.rig.invalid_samples import invalid_samples, without_sample
from hilserver.rig.learned import learned_values
from hilserver.rig.rig import Rig
from hilserver.service.actuator_status import actuator_statuses
from hilserver.service.device_reports import DeviceReports
from hilserver.service.playouts import PlayoutTable
from hilserver.service.reactions import ReactionTable
from hilserver.service.strategies import present_strategies
from hilserver.service.telemetry_samples import TelemetrySamples
from hilserver.service.utilisation import UtilisationMeter
from hilserver.tick.codes import FIRST_LIMIT_FAULT, FaultCode, Mode, PlayoutState, Saturation, fault_text
from hilserver.tick.modes import is_enabled
from hilserver.tick.row import header, headers

LONGEST_LIST = 20
"""Most ticks that an event lists."""


class TelemetryReader:
    """Reads the ring from its own cursor.

    ``degradations``, ``recording``, ``operator``, ``triggers`` and ``troubles`` (by source) appear in the state, the
    latter as warnings. ``trip_reason``: why the supervisor itself has sent a trip; over when the fault is reset.
    """

    def __init__(self, rig: Rig, memory: LoopMemory) -> None:
        self.rig = rig
        self.missed = 0
        self.degradations: tuple[str, ...] = ()
        self.troubles: dict[str, str] = {}
        self.trip_reason = ""
        self.operator: Callable[[], str | None] = lambda: None
        self.recording: RecordingStatus | None = None
        self.triggers: Callable[[], dict[str, TriggerStatus]] = dict
        self.recorded: Callable[[], int] = lambda: -1
        """The last tick that is known to be in a log."""
        self.devices = DeviceReports(rig.settings.devices)
        self._ring = memory.ring
        self._rows = np.empty((memory.ring.capacity, rig.layout.width))
        self._recent = self._rows[:0]
        self._cursor = 0
        self._last: Floats | None = None
        self._is_fault = False
        self._timing = LoopTiming(1.0 / rig.clock_rate)
        self.samples = TelemetrySamples(rig)
        self.reactions = ReactionTable(rig, self.samples.columns)
        self.playouts = PlayoutTable(rig, self.samples.columns)
        self._row_events = RowEvents(rig.layout.names)
        self._demands = UtilisationMeter(rig)
        self._outputs = {output.limit: output for output in rig.layout.outputs if output.max_age is not None}

    def latest(self) -> Floats | None:
        """A copy of the newest row, None before the first tick. May be called from any thread."""
        row = np.empty(self._ring.width)
        return row if self._ring.latest(row) >= 0 else None

    @property
    def published(self) -> int:
        """Rows published so far, for `since`."""
        return self._ring.published

    def since(self, cursor: int) -> Floats:
        """A copy of the rows from number ``cursor`` on, as far as the ring still has them."""
        rows = np.empty((max(self._ring.published - cursor, 0), self._ring.width))
        count, _, _ = self._ring.read(cursor, rows)
        return rows[:count]

    def read(self) -> Floats:
        """The rows since the last call, as far as the ring still has them; valid until the next call."""
        count, self._cursor, _ = self._ring.read(self._cursor, self._rows)
        rows = self._rows[:count]
        if count:
            self.missed = int(header(rows[-1]).tick) + 1 - self._cursor  # those in rows that were lost are counted too
            self._recent = rows
            self._timing.add(rows)
            self._demands.add(rows)
        return rows

    # --- state -------------------------------------------------------------------------------------------------------

    def state(self, row: Floats, telemetry_dropped: int) -> ServerState:
        """The state of the server; utilisation is the largest since the last call."""
        layout = self.rig.layout
        channels = layout.section("channel")
        measured = {name: _number(row[column]) for name, column in channels.items()}
        stale = layout.section("stale")
        actual = {name: value if math.isfinite(row[stale[name]]) else None for name, value in measured.items()}
        target = {f"input.{name}": float(row[column]) for name, column in layout.section("input").items()}
        for valve in layout.valves:
            block = layout.section(f"valve.{valve}")
            target[f"valve.{valve}.flow"] = float(row[block["flow_virtual"]])
            target[f"valve.{valve}.command"] = float(row[block["demand"]])
            actual[f"valve.{valve}.flow"] = _number(row[block["flow_measured"]])
            actual[f"valve.{valve}.command"] = float(row[block["command"]])
            for word in ("volume_error", "volume_lost"):
                actual[f"valve.{valve}.{word}"] = _number(row[block[word]])
        actuators = actuator_statuses(self.rig, row)
        for name, actuator in actuators.items():
            target[f"actuator.{name}.position"] = actuator.position
            actual[f"actuator.{name}.position"] = actuator.estimate
            target[f"actuator.{name}.command"] = float(layout.values(row, f"actuator.{name}.demand"))
            actual[f"actuator.{name}.command"] = actuator.command
        return ServerState(
            mode=Mode(int(header(row).mode)).name,
            fault=self.fault(row) or None,
            enabled=is_enabled(self.rig.plan, row) if self.rig.settings.enable is not None else None,
            unconfirmed=tuple(self.unconfirmed(row)),
            operator=self.operator(),
            warnings=tuple(self.warnings(row)),
            degradations=self.degradations,
            tick=int(header(row).tick),
            time=time.time(),
            missed_ticks=self.missed,
            telemetry_dropped=telemetry_dropped,
            timing=self.timing(),
            loop=self.loop_status(),
            devices=self.devices.status(),
            recording=self.recording and self.recording.model_copy(update={"buffer_left": self._buffer_left(row)}),
            reactions=self.reactions.status(row),
            playouts=self.playouts.status(row),
            triggers=self.triggers(),
            strategies=present_strategies(self.rig, row),
            utilisation=self._demands.take(),
            learned=learned_values(self.rig, row),
            actuators=actuators,
            target=target,
            actual=actual,
        )

    def _buffer_left(self, row: Floats) -> float:
        """Time for which the ring has room for rows that are in no log yet, s."""
        waiting = max(header(row).tick - self.recorded(), 0.0)
        return max(float(self._ring.capacity - waiting) / self.rig.settings.loop.rate, 0.0)

    def fault(self, row: Floats) -> str:
        """Cause of the fault in words; empty if there is none."""
        code = int(header(row).fault)
        if code == FaultCode.OPERATOR and self.trip_reason:
            return self.trip_reason
        return fault_reason(self.rig, code)

    def warnings(self, row: Floats) -> Iterator[str]:
        """Outputs that are not confirmed, violated limits, saturated commands and other problems, as sentences."""
        yield from self.unconfirmed(row)
        yield from self.troubles.values()
        for name in self.reactions.ended(row):
            yield f"reaction {name} has ended the run: release it before the next start (command release)"
        layout = self.rig.layout
        for name, column in layout.section("limit").items():
            if row[column] > 0 and name not in self._outputs:
                yield limit_text(self.rig, name, row)
        yield from invalid_samples(self.rig, row)
        if not is_enabled(self.rig.plan, row):
            yield "the local enable is off: the rig can't be armed or started"
        for kind, names in (("valve", layout.valves), ("actuator", layout.actuators)):
            for name in names:
                flags = int(layout.values(row, f"{kind}.{name}.saturation"))
                for flag in Saturation:
                    if flags & flag and flag != Saturation.SLEW:
                        yield f"{kind} {name}: {flag.text}"

    def unconfirmed(self, row: Floats) -> Iterator[str]:
        """Monitored outputs whose devices do not confirm their commands, with what a person must do."""
        layout = self.rig.layout
        for limit, output in self._outputs.items():
            if row[layout.column(f"limit.{limit}")] > 0:
                age = row[layout.column(f"confirmed_age.{output.name}")]
                value = row[layout.column(f"confirmed.{output.name}")]
                since = f"for {age:.3g} s; last confirmed: raw {value:g}" if math.isfinite(age) else "at all"
                yield (f"{output.name.replace('.', ' ')} is not confirmed by device {output.device} {since}. {ADVICE}")

    def timing(self) -> dict[str, float]:
        """Timing figures of the latest batch of rows by name, in seconds."""
        rows = self._recent
        if len(rows) == 0:
            return {}
        late, work = wake_up_delay(rows, self._timing.period), work_before(rows)
        return {
            "wake_up_median": float(np.median(late)),
            "wake_up_max": float(late.max()),
            "work_median": float(np.median(work)),
            "work_max": float(work.max()),
        }

    def loop_status(self) -> LoopStatus | None:
        """Timing of the loop since its start; None before the first tick."""
        timing = self._timing
        wake_up = _figures(timing.wake_up)
        if wake_up is None:
            return None
        parts = {name: _figures(distribution) for name, distribution in timing.parts.items()}
        return LoopStatus(
            period=timing.period,
            speed=self.rig.speed,
            wake_up=wake_up,
            work=_figures(timing.work),
            parts={name: figures for name, figures in parts.items() if figures is not None},
            time_sync_error=timing.time_sync_error,
            minimum_step=timing.minimum_step,
        )

    # --- events ------------------------------------------------------------------------------------------------------

    def events(self, rows: Floats) -> list[Event]:
        """What happened in these rows, in order: changes of mode, faults, switches, enable, limits, missed ticks.

        The enable, a limit, and missed ticks are reported once for all these rows.
        """
        if len(rows) == 0:
            return []
        limits = self.rig.layout.section("limit")
        now = np.column_stack(
            [headers(rows)["mode"], headers(rows)["circuit_version"], self._enabled(rows), rows[:, [*limits.values()]]]
        )
        change = np.diff(now, axis=0, prepend=now[:1] if self._last is None else self._last)
        self._last = now[-1:]
        found = [
            self._mode_event(rows, int(k), ended=has_ended(now[k, 0] - change[k, 0], now[k, 0]))
            for k in np.flatnonzero(change[:, 0])
        ]
        found += self._events_in_rows(rows)
        found += [self._switch_event(row) for row in rows[change[:, 1] != 0]]
        found += [self._enable_event(row) for row in rows[change[:, 2] != 0][-1:]]
        for number, name in enumerate(limits, 3):
            violated = rows[change[:, number] > 0]
            if len(violated):
                text = limit_text(self.rig, name, violated[0])
                found.append(_event("warning", text, violated[0], ticks=_ticks(violated)))
        missed = rows[headers(rows)["missed"] > 0]
        if len(missed):
            text = f"{number_of_ticks(headers(missed)['missed'].sum())} missed and compensated"
            found.append(_event("warning", text, missed[0], ticks=_ticks(missed)))
        return sorted(found, key=lambda event: event.tick)

    def _events_in_rows(self, rows: Floats) -> Iterator[Event]:
        """Reactions that have fired in these rows, and new states of playouts."""
        for row, event in self._row_events.find(rows, {0: [*self.reactions.news(), *self.playouts.news()]}):
            is_end = event.get("then") in ENDING or event.get("state") == PlayoutState.DEVIATED.name
            is_end = is_end or event["kind"] == DISARMED
            known = {key: event[key] for key in ("then", "state", "cycles") if key in event}
            about = {event["kind"]: event["name"], **known}
            yield _event("warning" if is_end else "info", row_event_text(event), rows[row], **about)

    def _enabled(self, rows: Floats) -> Floats:
        """1 in the rows in which the local enable is on."""
        if self.rig.settings.enable is None:
            return np.ones(len(rows))
        return np.array([is_enabled(self.rig.plan, row) for row in rows], dtype=np.float64)

    def _enable_event(self, row: Floats) -> Event:
        if is_enabled(self.rig.plan, row):
            return _event("info", "the local enable is on", row)
        return _event("warning", "the local enable is off", row)

    def _mode_event(self, rows: Floats, k: int, *, ended: bool) -> Event:
        """A new mode in row ``k``. ``ended``: RUNNING or ARMED; in the details, why it has, if it was no command."""
        row = rows[k]
        number = Mode(int(header(row).mode))
        mode, text = number.name, self.fault(row)
        cause = cause_of_end(self.rig, columns_of(self.rig, rows), k) if ended else ""
        if self._is_fault and number != Mode.FAULT:
            self.trip_reason = ""
        self._is_fault = number == Mode.FAULT
        if number == Mode.SAFE_NOT_CONFIRMED:
            text = " ".join(self.unconfirmed(row))
        kind: Literal["fault", "info"] = "fault" if number in (Mode.FAULT, Mode.SAFE_NOT_CONFIRMED) else "info"
        told, why = text or cause, {"ended": cause} if cause else {}
        return _event(kind, f"{mode.replace('_', ' ')}: {told}" if told else mode, row, mode=mode, **why)

    def _switch_event(self, row: Floats) -> Event:
        version = int(header(row).circuit_version)
        return _event("switch", f"version {version} of the circuit is active", row, version=version)


def fault_reason(rig: Rig, fault: int) -> str:
    """The reason of a fault, as a text; empty if there is none."""
    if fault >= FIRST_LIMIT_FAULT:
        limit = rig.layout.limits[fault - FIRST_LIMIT_FAULT]
        return f"{_not_confirmed(rig, limit) or f'limit {limit} was violated'} (action trip)"
    return fault_text(fault, rig.layout.limits)


def limit_text(rig: Rig, name: str, row: Floats) -> str:
    """That a limit is violated in this row, or can't be checked in it, as a text."""
    if text := _not_confirmed(rig, name):
        return text
    without = without_sample(rig, row, name)
    return f"limit {name} " + (f"can't be checked: channel {without} has no valid sample" if without else "is violated")


def _not_confirmed(rig: Rig, limit: str) -> str:
    """What it means that a limit on the confirmation of an output is violated; empty for all other limits."""
    output = next((o for o in rig.layout.outputs if o.limit == limit), None)
    if output is None:
        return ""
    return f"device {output.device} does not confirm the command of {output.name.replace('.', ' ')}"


def _figures(distribution: Distribution) -> DurationFigures | None:
    found = distribution.figures()
    return DurationFigures(**asdict(found)) if found is not None else None


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _event(kind: Literal["fault", "switch", "warning", "info"], text: str, row: Floats, **details: Any) -> Event:
    return Event(kind=kind, text=text, tick=int(header(row).tick), time=float(header(row).utc), details=details)


def _ticks(rows: Floats) -> list[int]:
    return [int(tick) for tick in headers(rows)["tick"][:LONGEST_LIST]]
