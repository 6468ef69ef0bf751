"""The figures of a case: errors against the reference simulation, noise, oscillation and drift of the bridged rig."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite, nan, sqrt

import numpy as np

from hilserver.fidelity.measures import Deviation, rms_above
from hilserver.fidelity.results import LIMITED, SegmentResult
from hilserver.numerics.arrays import Floats
from hilserver.rig.settings import RigSettings
from hilserver.tick.codes import Saturation
from hilserver.virtual_commissioning.cases import PAUSE, STEP, CaseKind
from hilserver.virtual_commissioning.criteria import CRITERIA

NOISE_ABOVE = 100.0
"""Hz; a command above it moves no machine."""
SETTLED = 1.0 / 3.0
"""Fraction of a rest after which noise and oscillation are taken."""
DRIFT_TIME = 0.5
"""s over which a flow error at rest is averaged."""
MIN_STROKE, MIN_SPEED, MIN_FLOW = 0.02, 0.1, 0.1
"""Shares of stroke, of the speed at the nominal flow, and of this flow; what moves less does not scale an error."""
STEP_RESPONSE_END = PAUSE + STEP + 0.3
"""s; until then the command follows a step, with frequencies that would count as noise."""
MIN_MOTION = 0.2
"""s of a command that show noise and oscillation."""
NO_FLOW = 0.02
"""Fraction of the nominal flow below which a saturation does not matter."""
OUT_OF_REACH = Saturation.RANGE | Saturation.SLEW


@dataclass(frozen=True)
class Scales:
    """What errors are divided by: strokes, m, by rod; nominal flows, m³/s, by port; the real supply pressure, Pa.

    ``speeds``: those of the shafts of motors at the nominal flow, rad/s.
    """

    strokes: Mapping[str, float]
    flows: Mapping[str, float]
    speeds: Mapping[str, float] = field(default_factory=dict)
    supply: float = nan


@dataclass(frozen=True)
class CaseFigures:
    """The figures of a case under a strategy. ``judged``: by the names of the criteria; the others inform.

    ``frequency``: dominant frequency of the command while the inputs rest, Hz. ``moved``: largest position error, m;
    ``lost``: the same at rest, signed. ``turned``: largest speed error of a shaft, rad/s; ``turning``: its largest mean
    at rest, signed. All four are None where the machine has no such part. ``flow``: largest mean flow error at rest,
    m³/s, signed, of the port ``port``. ``limited``: share of the ticks in which range or slew limit a command.
    ``other_flows``: errors of the flow at the ports without a valve of their own, against the virtual flow, as shares
    like ``flow`` in ``judged``.
    """

    judged: Mapping[str, float]
    moved: float | None = None
    turned: float | None = None
    frequency: float = 0.0
    lost: float | None = None
    turning: float | None = None
    flow: float = 0.0
    port: str = ""
    limited: float = 0.0
    other_flows: Mapping[str, float] = field(default_factory=dict)


def figures(kind: CaseKind, found: SegmentResult, settings: RigSettings, scales: Scales, dt: float) -> CaseFigures:
    """The figures of a case of this kind."""
    moved = max((d.largest for _, d in _deviations(found, "position") if scales.strokes), default=None)
    turned = max((d.largest for shaft, d in _deviations(found, "speed") if shaft in scales.speeds), default=None)
    judged = {"pressure": _worst(found, "pressure", dict.fromkeys(settings.ports, scales.supply), 0.0)}
    saturated, limited = _saturation(found, settings, scales)
    judged["saturated"] = saturated
    result = CaseFigures(judged, moved, turned, limited=limited, other_flows=_other_flows(found, settings, scales))
    if kind is CaseKind.REST:
        return _at_rest(result, found, scales, dt)
    if scales.strokes:
        judged["position"] = _worst(found, "position", _floors(scales.strokes, MIN_STROKE))
    if scales.speeds:
        judged["speed"] = _speed(found, _floors(scales.speeds, MIN_SPEED))
    judged["flow"] = _worst(found, "flow", _floors(scales.flows, MIN_FLOW))
    if kind is CaseKind.STEP:
        after = _from(found, STEP_RESPONSE_END)
        return _oscillation(result, after, scales, dt) if len(after.time) * dt >= MIN_MOTION else result
    judged["noise"] = _noise(found, dt)
    return result


def harmful(found: CaseFigures) -> CaseFigures:
    """Of these figures, those of an oscillation, a worn valve and a load that is not held."""
    hazardous = {criterion.name for criterion in CRITERIA if criterion.hazardous}
    judged = {name: value for name, value in found.judged.items() if name in hazardous}
    return replace(found, judged=judged, moved=None, turned=None, other_flows={})


def _other_flows(found: SegmentResult, settings: RigSettings, scales: Scales) -> dict[str, float]:
    """The flow errors at the ports that other edges of a valve's spool supply: no strategy can correct them."""
    ports = (valve.other_port for valve in settings.valves.values() if valve.other_port is not None)
    errors = {port: found.tracking[f"flow {port}"] for port in ports if f"flow {port}" in found.tracking}
    return {port: d.rms / max(d.range, MIN_FLOW * scales.flows[port]) for port, d in errors.items()}


def until(found: SegmentResult, ticks: int) -> SegmentResult:
    """The first ticks of a case."""
    return _part(found, slice(0, ticks))


def _from(found: SegmentResult, begin: float) -> SegmentResult:
    """A case from this time on, s."""
    return _part(found, slice(int(np.searchsorted(found.time, begin)), None))


def _part(found: SegmentResult, rows: slice) -> SegmentResult:
    def part(series: Mapping[str, Floats]) -> dict[str, Floats]:
        return {name: values[rows] for name, values in series.items()}

    return replace(
        found,
        time=found.time[rows],
        actual=part(found.actual),
        reference=part(found.reference),
        virtual=part(found.virtual),
        command=part(found.command),
        saturation=part(found.saturation),
        estimate=part(found.estimate),
    )


def _floors(sizes: Mapping[str, float], share: float) -> dict[str, float]:
    return {name: share * size for name, size in sizes.items()}


def _worst(found: SegmentResult, what: str, least: Mapping[str, float], ranges: float = 1.0) -> float:
    """The largest RMS deviation of a kind of quantity, relative to its range or to a minimum range. Only those in
    ``least``."""
    errors = [
        deviation.rms / max(ranges * deviation.range, least[where])
        for where, deviation in _deviations(found, what)
        if where in least
    ]
    return max(errors, default=0.0)


def _speed(found: SegmentResult, least: Mapping[str, float]) -> float:
    """The largest RMS error of a shaft's speed, relative to its highest speed, either way, or to a minimum."""
    errors = [
        deviation.rms / max(float(np.max(np.abs(found.reference[f"speed {shaft}"]))), least[shaft])
        for shaft, deviation in _deviations(found, "speed")
        if shaft in least
    ]
    return max(errors, default=0.0)


def _deviations(found: SegmentResult, what: str) -> Iterator[tuple[str, Deviation]]:
    for name, deviation in found.deviations.items():
        kind, _, where = name.partition(" ")
        if kind == what:
            yield where, deviation


def _at_rest(result: CaseFigures, found: SegmentResult, scales: Scales, dt: float) -> CaseFigures:
    """Drift over a rest; noise and oscillation from its later part."""
    flows = {port: _drift(found, f"flow {port}", dt) for port in scales.flows}
    shafts = [name for name in found.deviations if name.removeprefix("speed ") in scales.speeds]
    port = max(flows, key=lambda name: abs(flows[name]) / scales.flows[name])
    moving = _oscillation(result, _from(found, SETTLED * float(found.time[-1])), scales, dt)
    return replace(
        moving,
        judged={**moving.judged, "drift": abs(flows[port]) / scales.flows[port]},
        lost=max((_largest_error(found, f"position {rod}") for rod in scales.strokes), key=abs, default=None),
        turning=max((_drift(found, name, dt) for name in shafts), key=abs, default=None),
        flow=flows[port],
        port=port,
    )


def _oscillation(result: CaseFigures, found: SegmentResult, scales: Scales, dt: float) -> CaseFigures:
    """Noise and oscillation of the commands while the inputs rest."""
    motions = {valve: _without_trend(series) for valve, series in found.command.items()}
    required = max(_rms(_without_trend(found.reference[f"flow {p}"])) / scales.flows[p] for p in scales.flows)
    valve = max(motions, key=lambda name: _rms(motions[name]))
    oscillation = sqrt(max(_rms(motions[valve]) ** 2 - required**2, 0.0))
    judged = {**result.judged, "noise": _noise(found, dt), "oscillation": oscillation}
    return replace(result, judged=judged, frequency=dominant(motions[valve], dt))


def _drift(found: SegmentResult, name: str, dt: float) -> float:
    """The largest mean error of a flow or speed over `DRIFT_TIME`, signed: a load that sinks may soon be at its end."""
    error = found.actual[name] - found.reference[name]
    ticks = min(round(DRIFT_TIME / dt), len(error))
    passed = np.concatenate([[0.0], np.cumsum(error)])
    return float(max((passed[ticks:] - passed[:-ticks]) / ticks, key=abs))


def _largest_error(found: SegmentResult, name: str) -> float:
    return float(max(found.actual[name] - found.reference[name], key=abs))


def _noise(found: SegmentResult, dt: float) -> float:
    """The largest noise of a command; 0 if the case is too short, or the tick too slow to show any."""
    if 0.45 / dt <= NOISE_ABOVE:
        return 0.0
    values = [rms_above(series, NOISE_ABOVE, dt) for series in found.command.values()]
    return max((value for value in values if isfinite(value)), default=0.0)


def _without_trend(values: Floats) -> Floats:
    """The values without the straight line that fits them best."""
    place = np.arange(len(values)) - 0.5 * (len(values) - 1)
    around = values - np.mean(values)
    slope = float(place @ around) / max(float(place @ place), 1.0)
    rest: Floats = around - slope * place
    return rest


def _rms(values: Floats) -> float:
    return float(np.sqrt(np.mean(values * values)))


def dominant(values: Floats, dt: float) -> float:
    """Frequency of the largest line in the spectrum of evenly spaced values without a mean, Hz.

    >>> dominant(np.sin(2.0 * np.pi * 12.5 * 1e-3 * np.arange(2000)), 1e-3)
    12.5
    """
    spectrum = np.abs(np.fft.rfft(values * np.hanning(len(values))))
    return round(float(np.fft.rfftfreq(len(values), dt)[int(np.argmax(spectrum))]), 9)


def _saturation(found: SegmentResult, settings: RigSettings, scales: Scales) -> tuple[float, float]:
    """Shares of the ticks in which a valve passes too little, and in which range or slew limit a command.

    A valve that can't pass a flow of next to nothing, as in an oscillation about null, is not too small.
    """
    short, limited = np.zeros(len(found.time), dtype=bool), np.zeros(len(found.time), dtype=bool)
    for name, values in found.saturation.items():
        flags, port = values.astype(np.int64), settings.valves[name].port
        flow = found.virtual.get(f"flow {port}", np.zeros(len(values)))
        limited |= (flags & OUT_OF_REACH) > 0
        short |= ((flags & LIMITED) > 0) & (np.abs(flow) > NO_FLOW * scales.flows[port])
    return float(np.mean(short | limited)), float(np.mean(limited))
