"""The report on a run, from its log: plots, accuracy of valves and actuators, timing, events, circuit, settings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from hilserver.circuit.change import change_text
from hilserver.numerics.arrays import Floats
from hilserver.protocol.event_text import number_of_ticks
from hilserver.realtime.timing import Distribution, Figures, LoopTiming
from hilserver.record.actuator_sums import ActuatorSums, actuators_in
from hilserver.record.command_text import command_text
from hilserver.record.deviations import Deviations
from hilserver.record.format import Event, LogHeader, RecordError, is_circuit
from hilserver.record.notes import read_notes
from hilserver.record.reader import Batch, LogReader
from hilserver.record.row_events import DISARMED, PLAYOUT, ROW_EVENTS, row_event_text
from hilserver.record.summary import COMPARED
from hilserver.report.circuit_blocks import changes, components, drawing
from hilserver.report.document import Block, Code, Document, Facts, Grid, Heading, Picture
from hilserver.report.envelope import Envelope
from hilserver.report.event_list import EventList, Kind, Listed
from hilserver.report.plots import Panel, panels_figure
from hilserver.tick.codes import Mode, ResultCode, Saturation, fault_text
from hilserver.tick.row import HEADER_CELLS, RowHeader, headers
from hilserver.units import shown_unit

FAULTS = (Mode.FAULT, Mode.SAFE_NOT_CONFIRMED)
QUANTITIES = {"Pa": "pressure", "m": "position", "N": "force"}
"""The quantity that is measured in a unit."""
SATURATED = Saturation.CAPACITY | Saturation.NO_DROP | Saturation.RANGE


def write_run_report(log: Path, folder: Path) -> Path:
    """Write the report on a run as HTML and Markdown and return the former. Raises HilserverError."""
    page, *_ = run_report(log).write(folder, log.stem)
    return page


def run_report(path: Path) -> Document:
    """The report on a run. The log is read once and not held in memory.

    Raises HilserverError if it can't be read, or its notes can't.
    """
    reader = LogReader(path)
    run = _Run(reader.header)
    for batch in reader.batches():
        run.take(batch)
    if run.rows == 0:
        raise RecordError(path, "contains no rows.")
    header = reader.header
    blocks: list[Block] = [Facts(tuple(_about(reader, run)))]
    blocks += [Heading("Signals"), Picture("signals", _plot(run), _plot_caption(run))]
    if run.valves:
        blocks += [Heading("Valves"), _valve_table(run)]
    if run.actuators:
        blocks += [Heading("Actuators"), _actuator_table(run)]
    blocks += [Heading("Timing"), *_timing(run)]
    blocks += [Heading("Events"), _event_table(run)]
    if notes := read_notes(path):
        rows = tuple((f"{note.time:.3f}", note.text, note.author) for note in notes)
        blocks += [Heading("Notes"), Grid(("note at, s", "note", "by"), rows)]
    blocks += _circuits(run)
    blocks.append(Heading("Configuration"))
    for name, table in header.configuration.items():
        if isinstance(table, dict) and table and name != "circuit":
            blocks += [f"{name}:", Code(json.dumps(table, indent=1, ensure_ascii=False, default=str))]
    return Document(f"{header.rig}: run of {header.started[:16].replace('T', ' ')} UTC", blocks)


@dataclass
class _Valve(Deviations):
    """Flows in m^3/s. ``total``: sum of the virtual ones without sign; ``lost``: first and last volume lost, m^3."""

    total: float = 0.0
    lost: tuple[float, float] | None = None

    def add(self, virtual: Floats, measured: Floats, flags: Floats, lost: Floats | None) -> None:
        """Add rows in mode RUNNING."""
        self.compare(virtual, measured, flags, SATURATED)
        self.total += float(np.abs(virtual).sum())
        if lost is not None:
            self.lost = (float(lost[0]) if self.lost is None else self.lost[0], float(lost[-1]))


@dataclass
class _Run:
    """The data collected from the batches of a log."""

    header: LogHeader
    rows: int = 0
    missed: int = 0
    first: float = 0.0
    last: float = 0.0
    envelope: Envelope = field(default_factory=Envelope)
    valves: dict[str, _Valve] = field(default_factory=dict)
    actuators: dict[str, ActuatorSums] = field(default_factory=dict)
    events: EventList = field(default_factory=EventList)
    circuits: list[tuple[float, Mapping[str, Any]]] = field(default_factory=list)
    playouts: dict[int, str] = field(default_factory=dict)
    """Name of each playout by its number."""
    cycles: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Its cycles at the end of the log, done and wanted."""
    _before: Floats | None = None

    def __post_init__(self) -> None:
        columns = self.header.columns
        self.timing = LoopTiming(self.header.clock_period_s)
        ends = (".flow_virtual", ".flow_measured", ".command")
        valve = [name for name in columns if name.startswith("valve.") and name.endswith(ends)]
        channels = [name for name in columns if name.startswith("channel.")]
        inputs = [name for name in columns if name.startswith("input.")]
        self.actuators = {name: ActuatorSums() for name in actuators_in(columns)}
        actuator = [f"actuator.{name}.{word}" for name in self.actuators for word in ("position", "error")]
        self.shown = ["time", *channels, *inputs, *valve, *[name for name in actuator if name in columns], "mode"]
        named = (name.removesuffix(".flow_virtual")[6:] for name in valve if name.endswith(".flow_virtual"))
        self.valves = {name: _Valve() for name in named if all(f"valve.{name}.{word}" in columns for word in COMPARED)}
        self._limits = [name.removeprefix("limit.") for name in columns if name.startswith("limit.")]
        packed = self.header.packed
        self.circuits = [(0.0, packed.get("source", {}))]

    def take(self, batch: Batch) -> None:
        """Add a batch of the log."""
        column = {name: batch.column(name) for name in self.header.columns}
        time = column["time"]
        if self.rows == 0:
            self.first = float(time[0])
        self.rows, self.last = self.rows + len(batch), float(time[-1])
        self.missed += int(column["missed"].sum())
        self.envelope.add(np.stack([self._sampled(column, name) for name in self.shown], axis=1))
        rows = np.zeros((len(batch), HEADER_CELLS))
        heads: Any = headers(rows)  # whose whole numbers are not the floats in the log's columns
        for name in set(RowHeader.names()) & column.keys():
            heads[name] = column[name]
        self.timing.add(rows)
        running = column["mode"] == Mode.RUNNING
        if running.any():
            for name, valve in self.valves.items():
                lost = column.get(f"valve.{name}.volume_lost")  # logs of early versions have none
                virtual, measured, flags = (column[f"valve.{name}.{word}"][running] for word in COMPARED)
                valve.add(virtual, measured, flags, lost[running] if lost is not None else None)
            for name, actuator in self.actuators.items():
                actuator.add(name, column, running)
        for number, event in batch.events:
            row = number - batch.start
            self._event(float(time[row]), int(column["tick"][row]), int(column["result"][row]), event)
        self._changes_in(column)
        self._count_cycles(column)
        self.events.shorten()

    def _count_cycles(self, column: Mapping[str, Floats]) -> None:
        numbers = [
            int(name.split(".")[1]) for name in column if name.startswith("playout.") and name.endswith(".count")
        ]
        for number in numbers:
            if column[f"playout.{number}.state"][-1]:
                done, wanted = (int(column[f"playout.{number}.{word}"][-1]) for word in ("count", "cycles"))
                self.cycles[number] = done, wanted

    def _sampled(self, column: Mapping[str, Floats], name: str) -> Floats:
        """A column; NaN for a channel that has no sample yet."""
        stale = column.get(name.replace("channel.", "stale.", 1))
        return column[name] if stale is None else np.where(np.isfinite(stale), column[name], np.nan)

    def _changes_in(self, column: Mapping[str, Floats]) -> None:
        """Changes of mode, violations of limits, missed ticks."""
        now = np.stack([column[name] for name in ("mode", *(f"limit.{name}" for name in self._limits))], axis=1)
        change = np.diff(now, axis=0, prepend=now[:1] if self._before is None else self._before)
        self._before = now[-1:]
        for row in map(int, np.flatnonzero(change[:, 0])):
            fault = fault_text(int(column["fault"][row]), self._limits)
            text = Mode(int(now[row, 0])).name + (f": {fault}" if fault else "")
            self._add(column, row, text, "fault" if int(now[row, 0]) in FAULTS else "")
        for place, name in enumerate(self._limits, 1):
            for row in map(int, np.flatnonzero(change[:, place] > 0)):
                self._add(column, row, f"limit {name} is violated", "warning")
        for row in map(int, np.flatnonzero(column["missed"])):
            self._add(column, row, f"{number_of_ticks(column['missed'][row])} missed", "warning")

    def _add(self, column: Mapping[str, Floats], row: int, text: str, kind: Kind) -> None:
        self.events.add(Listed(float(column["time"][row]), int(column["tick"][row]), text, kind))

    def _event(self, time: float, tick: int, result: int, event: Event) -> None:
        """Add an event of the log; ``result``: of the command in this tick."""
        if is_circuit(event):
            source = event["packed"].get("source", {})
            self.events.add(Listed(time, tick, f"switched: {change_text(self.circuits[-1][1], source)}"))
            self.circuits.append((time, source))
        elif event.get("kind") == "command":
            if (playout := event.get(PLAYOUT)) is not None:
                self.playouts[int(playout["number"])] = f"{playout['name']} ({playout['text']})"
            if text := command_text(event, self.header):
                refused = f", refused: {ResultCode(result).text}" if result != ResultCode.DONE else ""
                self.events.add(Listed(time, tick, f"command {text}{refused}"))
        elif event.get("kind") in ROW_EVENTS:
            level = ("warning",) if event["kind"] == DISARMED else ()
            self.events.add(Listed(time, tick, row_event_text(event), *level))
        elif event.get("kind") == "trigger":
            self.events.add(Listed(time, tick, f"trigger {event['name']}: {event['text']}"))
        elif event.get("kind") == "lost":
            self.events.add(Listed(time, tick, "the rows before this one were lost", "warning"))


def _about(reader: LogReader, run: _Run) -> Iterator[tuple[str, str]]:
    header = reader.header
    yield "Rig", header.rig
    yield "Started", f"{header.started[:19].replace('T', ' ')} UTC"
    yield (
        "Duration",
        (
            f"{run.last - run.first + header.period_s:.4g} s: {run.rows} ticks of {1e3 * header.period_s:g} ms, "
            f"{run.missed} missed, {len(run.circuits) - 1} switches of the circuit"
        ),
    )
    for number, (done, wanted) in run.cycles.items():
        yield "Playout", f"{run.playouts.get(number, number)}: {done} of {wanted} cycles"
    at_speed = f", at {header.speed:g} times real time" if header.speed != 1.0 else ""
    yield "Clock", str(header.extra.get("kind", "unknown")) + at_speed
    yield "Software", header.software
    if found := header.extra.get("machine"):
        yield (
            "Machine",
            f"{found['processor']}, {found['cpus']} CPUs; Linux {found['kernel'].split()[0]}; Python {found['python']}",
        )
    files = f" and {len(reader.parts) - 1} more files" if len(reader.parts) > 1 else ""
    yield "Log", f"{reader.path}{files}"
    if reader.torn and not reader.damages:
        yield "Incomplete", "The log has no end mark: the recorder was killed, or is still writing."
    if header.row:
        yield "Signals", f"those that a replay needs, and {', '.join(header.signals)}"
    yield from (("Damaged", str(damage)) for damage in reader.damages)


def _plot(run: _Run) -> Figure:
    low, high = run.envelope.bounds()
    both = np.stack([low, high], axis=1).reshape(-1, low.shape[1])
    time = np.repeat(low[:, 0], 2)
    values = {name: both[:, place] for place, name in enumerate(run.shown)}
    units = _channel_units(run.header)
    flows = {name: v for name, v in values.items() if name.endswith((".flow_virtual", ".flow_measured")) and _any(v)}
    for name, unit in units.items():  # a sensor at a valve measures the valve's flow, which is plotted already
        if unit == "m^3/s" and not any(_same(values[name], flow) for flow in flows.values()):
            flows[name] = values[name]
    others = {name: unit for name, unit in units.items() if unit != "m^3/s"}
    panels: list[Panel] = []
    errors = {name: values[f"actuator.{name}.error"] for name in run.actuators if f"actuator.{name}.error" in values}
    for unit in dict.fromkeys(others.values()):
        lines = {_short(name): values[name] for name, own in others.items() if own == unit}
        if unit == "m":
            lines |= {f"{name}, to follow": values[f"actuator.{name}.position"] for name in run.actuators}
        panels.append((QUANTITIES.get(unit, "measured"), unit, lines))
        if unit == "m":
            panels.append(("error", unit, errors))
    commands = {_short(name): v for name, v in values.items() if name.endswith(".command")}
    commands |= {_short(name): v for name, v in values.items() if name.startswith("input.")}
    panels.insert(1, ("flow", "m^3/s", {_short(name): v for name, v in flows.items()}))
    panels = [panel for panel in (*panels, ("command", "", commands)) if panel[2]]
    figure = panels_figure(time, panels, run.header.rig)
    for axis in figure.axes:
        for at, _ in run.circuits[1:]:
            axis.axvline(at, color="0.4", ls=":", lw=1)
    return figure


def _plot_caption(run: _Run) -> str:
    parts = ["Dotted lines: switches of the circuit."] if len(run.circuits) > 1 else []
    if run.envelope.rows_per_bin > 1:
        parts.append(f"Minimum and maximum of every {run.envelope.rows_per_bin} ticks.")
    return " ".join(parts) or "Every tick."


def _same(one: Floats, other: Floats) -> bool:
    """Whether two columns are equal except for a few rows, such as those before the first sample."""
    return float(np.mean(one == other)) > 0.99


def _short(column: str) -> str:
    """A column's name without what the label of the panel already says."""
    return re.sub(r"^(channel|input|valve)\.", "", column).replace(".flow_", " ").replace(".command", "")


def _any(values: Floats) -> bool:
    return bool(np.isfinite(values).any())


def _channel_units(header: LogHeader) -> dict[str, str]:
    """SI units of the channels; logs of early versions have none."""
    return {name: header.units.get(name, "") for name in header.columns if name.startswith("channel.")}


def _valve_table(run: _Run) -> Grid:
    rows = tuple((name, *_valve_cells(valve, run.header.period_s)) for name, valve in run.valves.items())
    flow = ("virtual flow,\nrange, l/min", "RMS deviation,\nl/min", "share of\nrange", "maximum\ndeviation, l/min")
    return Grid(
        ("valve", "RUNNING, s", *flow, "saturated", "volume\nlost"),
        rows,
        "Measured compared with virtual flow in mode RUNNING. Volume lost: virtual volume that the real valve has not "
        "passed and that was not compensated, as a fraction of the total volume to be passed, in both directions.",
    )


def _valve_cells(valve: _Valve, period: float) -> tuple[str, ...]:
    flow, (_, factor) = valve.span, shown_unit("m^3/s")
    deviations = ("–", "–", "–")
    if valve.known and flow > 0.0:
        share = f"{100 * valve.rms / flow:.2g} %"
        deviations = (f"{valve.rms * factor:.3g}", share, f"{valve.largest * factor:.3g}")
    if valve.rows == 0:
        return "0", "–", *deviations, "–", "–"
    passed, lost = valve.total * period, "–"
    if valve.lost is not None and passed > 0.0:
        lost = f"{100 * abs(valve.lost[1] - valve.lost[0]) / passed:.2g} %"
    return (
        f"{valve.rows * period:.4g}",
        f"{flow * factor:.1f}",
        *deviations,
        f"{100 * valve.share_limited:.2g} %",
        lost,
    )


def _actuator_table(run: _Run) -> Grid:
    period = run.header.period_s
    return Grid(
        (
            "actuator",
            "RUNNING, s",
            "to follow,\nrange, mm",
            "RMS error,\nmm",
            "share of\nrange",
            "maximum\nerror, mm",
            "largest\nforce, N",
            "at limits",
        ),
        tuple((name, *_actuator_cells(actuator, period)) for name, actuator in run.actuators.items()),
        "Error: measured displacement minus the one to follow in mode RUNNING, the approach at the start included. At "
        "limits: share of the time with the command at the end of its range or at its slew limit.",
    )


def _actuator_cells(actuator: ActuatorSums, period: float) -> tuple[str, ...]:
    if actuator.rows == 0 or actuator.known == 0:
        return f"{actuator.rows * period:.4g}", *("–" for _ in range(6))
    share = f"{100 * actuator.rms / actuator.span:.2g} %" if actuator.span > 0.0 else "–"
    return (
        f"{actuator.rows * period:.4g}",
        f"{1e3 * actuator.span:.3g}",
        f"{1e3 * actuator.rms:.3g}",
        share,
        f"{1e3 * actuator.largest:.3g}",
        f"{actuator.force:.4g}",
        f"{100 * actuator.share_limited:.2g} %",
    )


def _timing(run: _Run) -> Iterator[Block]:
    timing = run.timing
    if timing.work.count == 0:
        yield "The run was not in real time and has no timing."
        return
    named: dict[str, Distribution] = {"wake-up after the deadline": timing.wake_up, "work per tick": timing.work}
    named |= {f"  {name}": part for name, part in timing.parts.items()}
    rows = tuple((name, *_microseconds(found)) for name, part in named.items() if (found := part.figures()))
    yield Grid(("µs", "min", "mean", "median", "99 %", "99.9 %", "max"), rows)
    yield (
        f"{number_of_ticks(run.missed)} missed; time synchronisation error {1e6 * timing.time_sync_error:.0f} µs, "
        f"minimum step {1e6 * timing.minimum_step:.0f} µs of {1e6 * timing.period:.0f} µs."
    )


def _microseconds(f: Figures) -> tuple[str, ...]:
    return tuple(f"{1e6 * value:.1f}" for value in (f.min, f.mean, f.median, f.p99, f.p999, f.max))


def _event_table(run: _Run) -> Block:
    listed = run.events.listed()
    if not listed:
        return "No commands, changes of mode, or violated limits."
    more = f"{run.events.dropped} more not listed." if run.events.dropped else ""
    return Grid(("time, s", "tick", "event"), tuple(entry.cells() for entry in listed), more)


def _circuits(run: _Run) -> Iterator[Block]:
    """The first circuit and its later versions, drawn again if they look different."""
    looks, before = "", run.circuits[0][1]
    for number, (time, source) in enumerate(run.circuits):
        yield Heading(f"Circuit from {time:.4g} s on" if number else "Circuit")
        if number == 0 and (text := source.get("description")):
            yield str(text)
        for drawn in drawing(source, f"circuit-{number}"):
            if drawn.svg != looks:
                yield drawn
            looks = drawn.svg
        yield changes(before, source) if number else components(source)
        before = source
