"""Reads the ring for people: state, telemetry, events. It only looks; the loop does not notice."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import numpy as np

from hilserver.bridge import columns as b
from hilserver.circuit.pack import PackedCircuit
from hilserver.numerics.arrays import Floats
from hilserver.realtime.shared import LoopMemory
from hilserver.rig import columns as c
from hilserver.rig.load import Rig
from hilserver.service.messages import ChannelInfo, Event, InputInfo, State, Telemetry, ValveInfo

VALVE_CHANNELS = {"flow_virtual": "m^3/s", "flow_measured": "m^3/s", "demand": "", "command": "", "saturation": ""}


class Observer:
    """Follows the ring from its own cursor."""

    def __init__(self, rig: Rig, memory: LoopMemory) -> None:
        self.rig = rig
        self.packed: PackedCircuit = rig.packed
        self.missed = 0
        self.degradations: tuple[str, ...] = ()
        self._memory = memory
        self._row = np.zeros(rig.layout.width)
        self._rows = np.empty((4096, rig.layout.width))
        self._recent = np.empty((0, rig.layout.width))
        self._cursor = 0
        self._last: Floats | None = None
        self._channels = self._channel_columns()

    def latest(self) -> Floats | None:
        """A copy of the newest row, None before the first tick."""
        return self._row.copy() if self._memory.ring.latest(self._row) >= 0 else None

    def read(self) -> Floats:
        """The rows since the last call (the newest 4096), also noted for events and timing."""
        count, self._cursor, _ = self._memory.ring.read(self._cursor, self._rows)
        rows = self._rows[:count]
        if count:
            self.missed += int(rows[:, c.MISSED].sum())
            self._recent = rows.copy()
        return rows

    # --- state -------------------------------------------------------------------------------------------------------

    def state(self, row: Floats, telemetry_dropped: int) -> State:
        """How the server is."""
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
        mode = c.MODE_NAMES[int(row[c.MODE])]
        return State(
            mode=mode,  # type: ignore[arg-type]
            fault=fault_text(self.rig, int(row[c.FAULT])) or None,
            warnings=tuple(self.warnings(row)),
            degradations=self.degradations,
            tick=int(row[c.TICK]),
            time=time.time(),
            missed_ticks=self.missed,
            telemetry_dropped=telemetry_dropped,
            timing=self.timing(),
            target=target,
            actual=actual,
        )

    def warnings(self, row: Floats) -> Iterator[str]:
        """Violated limits and saturated valves, in words."""
        layout = self.rig.layout
        for name, column in layout.section("limit").items():
            if row[column] > 0:
                yield f"limit {name} is violated"
        for valve in layout.valves:
            flags = int(row[layout.column(f"valve.{valve}.saturation")])
            for flag, text in b.SATURATION_TEXTS.items():
                if flags & flag and flag != b.SLEW:
                    yield f"valve {valve}: {text}"

    def timing(self) -> dict[str, float]:
        """Figures of the latest batch of rows, in seconds."""
        rows = self._recent
        if len(rows) == 0:
            return {}
        work = rows[:, c.READ_TIME] + rows[:, c.COMPUTE_TIME] + rows[:, c.WRITE_TIME]
        return {
            "wake_up_median": float(np.median(rows[:, c.WAKE_ERROR])),
            "wake_up_max": float(rows[:, c.WAKE_ERROR].max()),
            "work_median": float(np.median(work)),
            "work_max": float(work.max()),
        }

    # --- events ------------------------------------------------------------------------------------------------------

    def events(self, rows: Floats) -> Iterator[Event]:
        """What happened in these rows: changes of mode, faults, limits that became violated, missed ticks."""
        limits = self.rig.layout.section("limit")
        for row in rows:
            last, self._last = self._last, row.copy()
            if last is None:
                continue
            if row[c.MODE] != last[c.MODE]:
                mode = c.MODE_NAMES[int(row[c.MODE])]
                text = fault_text(self.rig, int(row[c.FAULT]))
                yield _event("fault" if mode == "FAULT" else "info", f"{mode}: {text}" if text else mode, row)
            for name, column in limits.items():
                if row[column] > last[column]:
                    yield _event("warning", f"limit {name} is violated", row)
            if row[c.MISSED] > 0:
                yield _event("warning", f"{int(row[c.MISSED])} ticks missed and made good", row)

    # --- telemetry ---------------------------------------------------------------------------------------------------

    def telemetry(self, rows: Floats) -> Telemetry | None:
        """A batch of decimated samples, None where there is nothing new."""
        settings = self.rig.settings
        every = max(round(settings.loop.rate / settings.mqtt.telemetry_rate), 1)
        chosen = rows[rows[:, c.TICK].astype(np.int64) % every == 0]
        if len(chosen) == 0:
            return None
        channels = {name: tuple(map(_number, chosen[:, column])) for name, column in self._channels.items()}
        first = int(self.rig.layout.column("tick"))
        start = len(self.rig.layout.names)
        same = chosen[:, c.CIRCUIT_VERSION] == chosen[-1, c.CIRCUIT_VERSION]
        for place, name in enumerate(self.packed.names):
            values = np.where(same, chosen[:, start + place], np.nan)
            channels[f"circuit.{name}"] = tuple(map(_number, values))
        channels["tick"] = tuple(map(_number, chosen[:, first]))
        return Telemetry(t0=float(chosen[0, c.UTC]), dt=every / settings.loop.rate, channels=channels)

    def _channel_columns(self) -> dict[str, int]:
        layout = self.rig.layout
        columns = {name: layout.column(f"channel.{name}") for name in self.rig.settings.channels}
        columns |= {f"input.{name}": column for name, column in layout.section("input").items()}
        for valve in layout.valves:
            columns |= {f"valve.{valve}.{word}": layout.column(f"valve.{valve}.{word}") for word in VALVE_CHANNELS}
        return {"mode": c.MODE, **columns}

    # --- description -------------------------------------------------------------------------------------------------

    def channel_infos(self) -> dict[str, ChannelInfo]:
        """Every channel of telemetry with its unit."""
        settings = self.rig.settings
        infos = {
            name: ChannelInfo(unit=s.unit, kind="measured" if s.device else "configured", description=s.description)
            for name, s in settings.channels.items()
        }
        infos |= {f"input.{name}": ChannelInfo(unit="", kind="command") for name in settings.inputs}
        for valve in settings.valves:
            infos |= {
                f"valve.{valve}.{word}": ChannelInfo(unit=unit, kind="bridge") for word, unit in VALVE_CHANNELS.items()
            }
        infos["mode"] = ChannelInfo(unit="", kind="state", description=", ".join(f"{i} {n}" for i, n in enumerate(c.MODE_NAMES)))
        infos["tick"] = ChannelInfo(unit="", kind="state", description="tick of the sample")
        return infos

    def input_infos(self) -> dict[str, InputInfo]:
        """Operator inputs and their ranges."""
        return {
            name: InputInfo(unit="", minimum=s.range[0], maximum=s.range[1], description=s.description)
            for name, s in self.rig.settings.inputs.items()
        }

    def valve_infos(self) -> dict[str, ValveInfo]:
        """Real valves and the strategies that can drive them."""
        return {
            name: ValveInfo(strategies=strategies_of(self.rig, name), description=s.description)
            for name, s in self.rig.settings.valves.items()
        }


def strategies_of(rig: Rig, valve: str) -> tuple[str, ...]:
    """The strategies a valve can take: a flow servo needs a measured flow."""
    measured = rig.settings.valves[valve].flow is not None
    return tuple(name for name in b.STRATEGY_NAMES if measured or name != b.STRATEGY_NAMES[b.FLOW_SERVO])


def fault_text(rig: Rig, fault: int) -> str:
    """A fault's reason in words; empty for none."""
    if fault >= c.FAULT_LIMIT:
        name = rig.layout.limits[fault - c.FAULT_LIMIT]
        return f"limit {name} was violated (action trip)"
    return c.FAULT_TEXTS.get(fault, f"fault {fault}")


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _event(kind: str, text: str, row: Floats) -> Event:
    return Event(kind=kind, text=text, tick=int(row[c.TICK]), time=float(row[c.UTC]))  # type: ignore[arg-type]
