"""Plots of an identified valve: flow over spool position, Bode plot, residuals, Bode plot of its flow servo."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.signal import coherence, csd

from hilserver.identify.flows import FlowOverOpening, flows_of
from hilserver.identify.identification import Identified
from hilserver.identify.model import delay_of
from hilserver.identify.servo import ServoTuning
from hilserver.margins.servo_loop import frequencies
from hilserver.numerics.arrays import Floats
from hilserver.units import shown_unit, shown_value

FLOW_UNIT, PER_FLOW = shown_unit("m^3/s")
BINS = 60
MIN_SAMPLES = 10
"""In a bin that is plotted."""
NULL_REGION = 0.08
SEGMENT = 1.0
"""s, of the averaged spectra."""
MIN_COHERENCE = 0.2
SHOWN_LAGS = 100
LOWEST = 1e-3
"""Lowest frequency of a servo's plot, of half the tick rate."""


def flow_figure(found: Identified) -> Figure:
    """Measured and modelled flow over the spool position: whole range, and null region."""
    figure, axes = _figure(1, 2)
    for flow in flows_of(found.experiment, found.values):
        for axis, reach in zip(axes, (1.0, NULL_REGION), strict=True):
            at, measured, model = _means(flow, reach)
            axis.plot(at, model * PER_FLOW, lw=0.9, label=f"model, {flow.label}")
            axis.plot(at, measured * PER_FLOW, ".", ms=4, label=f"measured, {flow.label}")
    for axis, title in zip(axes, ("whole range", "null region"), strict=True):
        axis.set(xlabel="spool position, of full stroke", ylabel=f"flow at the nominal drop, {FLOW_UNIT}", title=title)
        axis.grid(alpha=0.3)
        if axis.lines:
            axis.legend(fontsize=7).set_in_layout(False)
    return figure


def _means(flow: FlowOverOpening, reach: float) -> tuple[Floats, Floats, Floats]:
    """Means in bins: spool, measured, model."""
    inside = flow.used & np.isfinite(flow.at_nominal) & (np.abs(flow.spool) <= reach)
    reach = min(reach, float(np.abs(flow.spool[inside]).max(initial=1e-6)))
    number = np.clip(((flow.spool[inside] / reach + 1.0) * 0.5 * BINS).astype(np.int64), 0, BINS - 1)
    count = np.bincount(number, minlength=BINS)
    enough = count >= MIN_SAMPLES
    rows = (flow.spool, flow.measured * flow.at_nominal, flow.model * flow.at_nominal)
    at, measured, model = (
        np.bincount(number, row[inside], BINS)[enough] / count[enough] for row in (np.nan_to_num(r) for r in rows)
    )
    return at, measured, model


def bode_figure(found: Identified) -> Figure:
    """Measured and modelled frequency response."""
    e, values = found.experiment, found.values
    figure, axes = _figure(2, 1)
    sets = [(f.label, f.instant, f.measured, f.model, f.used) for f in flows_of(found.experiment, found.values)]
    if e.spool is not None:
        measured_spool = (e.spool.measured - values.get("spool_zero", 0.0)) / values["spool_gain"]
        sets.append((e.spool.channel, e.command, measured_spool, e.way(values).way[:, 0], e.spool.used))
    for label, instant, measured, model, used in sets:
        f, ratio, deviation = _against_model(instant, measured, model, used, e.dt)
        _points(axes, f, ratio * _model_response(f, found), deviation, label)
    f = np.geomspace(1.0 / SEGMENT, 0.45 / e.dt, 300)
    _line(axes, f, _model_response(f, found))
    axes[0].set(ylabel="amplitude, dB", ylim=(-30, 10))
    axes[1].set(ylabel="phase, °", xlabel="frequency, Hz", ylim=(-270, 30))
    for axis in axes:
        axis.set_xscale("log")
        axis.grid(alpha=0.3, which="both")
        axis.legend(fontsize=7).set_in_layout(False)
    return figure


def _against_model(
    instant: Floats, measured: Floats, model: Floats, used: NDArray[np.bool_], dt: float
) -> tuple[Floats, Floats, Floats]:
    """Frequencies, ratio of measured to modelled response, its standard deviation: where the coherence is sufficient.

    Effects that both share cancel: overlap, varying pressure drops, held commands.
    Source of the deviation: Bendat & Piersol, Random Data, 4th ed. 2010, table 9.6.
    """
    x, y, z = (np.where(used, signal[: len(used)], 0.0) for signal in (instant, measured, model))
    setting = {"fs": 1.0 / dt, "nperseg": min(round(SEGMENT / dt), len(used))}
    f, actual = csd(x, y, **setting)
    _, modelled = csd(x, z, **setting)
    _, shared = coherence(x, y, **setting)
    good = (f > 0.0) & (f < 0.45 / dt) & (shared > MIN_COHERENCE)
    segments = len(used) / setting["nperseg"]
    deviation = np.sqrt((1.0 - shared[good]) / (2.0 * shared[good] * segments))
    return f[good], actual[good] / modelled[good], deviation


def _model_response(f: Floats, found: Identified) -> Floats:
    values = found.values
    ratio, d = f / values["frequency"], values.get("damping", 0.0)
    spool = 1.0 / (1.0 - ratio**2 + 2j * d * ratio) if found.second_order else 1.0 / (1.0 + 1j * ratio)
    return np.asarray(spool * np.exp(-2j * np.pi * f * delay_of(values)))


def _points(axes: list[Axes], f: Floats, response: Floats, deviation: Floats, label: str) -> None:
    style: dict[str, Any] = {"fmt": ".", "ms": 4, "lw": 0.6, "label": f"measured, {label}"}
    axes[0].errorbar(f, 20.0 * np.log10(np.abs(response)), yerr=8.686 * deviation, **style)
    axes[1].errorbar(f, _degrees(response), yerr=np.degrees(deviation), **style)


def _line(axes: list[Axes], f: Floats, response: Floats) -> None:
    axes[0].plot(f, 20.0 * np.log10(np.abs(response)), "k", lw=1.0, label="model")
    axes[1].plot(f, _degrees(response), "k", lw=1.0, label="model")


def _degrees(response: Floats) -> Floats:
    """Phase between -330° and 30°."""
    phase = np.degrees(np.angle(response))
    return np.asarray((phase - 30.0) % -360.0 + 30.0)


def residual_figure(found: Identified) -> Figure:
    """Filtered residuals of every signal over time, and their autocorrelation."""
    figure, axes = _figure(1, 2)
    dt = found.experiment.dt
    for signal in found.experiment.signals:
        white = found.fit.white[signal.name]
        every = max(len(white) // 10_000, 1)
        axes[0].plot(np.arange(len(white))[::every] * dt, white[::every], ".", ms=1, label=signal.name)
        part = white[signal.used]
        lags = np.arange(1, SHOWN_LAGS + 1)
        power = float(part @ part)
        axes[1].plot(lags * dt * 1e3, [float(part[k:] @ part[:-k]) / power for k in lags], lw=0.9, label=signal.name)
        axes[1].axhspan(-1.96 / sqrt(len(part)), 1.96 / sqrt(len(part)), color="k", alpha=0.08)
    axes[0].set(xlabel="time, s", ylabel="filtered residual, standard deviations")
    axes[1].set(xlabel="lag, ms", ylabel="autocorrelation", ylim=(-0.1, 0.1))
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7).set_in_layout(False)
    return figure


def servo_figure(servo: ServoTuning) -> Figure:
    """Open loop with its margins, and closed loop, at each pressure drop."""
    figure, (open_size, closed_size, open_phase, closed_phase) = _figure(2, 2)
    for drop, loop in servo.loops.items():
        omega = frequencies(loop.plant.dt)
        omega = omega[omega > LOWEST * omega[-1]]
        f = omega / (2.0 * np.pi)
        for size, phase, response in (
            (open_size, open_phase, loop.open(omega)),
            (closed_size, closed_phase, loop.closed(omega)),
        ):
            label = f"{shown_value(drop, 'Pa', 3)} across one edge"
            size.plot(f, 20.0 * np.log10(np.abs(response)), lw=0.9, label=label)
            phase.plot(f, np.degrees(np.unwrap(np.angle(response))), lw=0.9)
    m = servo.loops[servo.drop].margins()
    open_size.plot([m.gain_at] * 2, [0.0, -20.0 * np.log10(m.gain)], "ks-", ms=4, label=f"gain margin {m.gain:.3g}")
    open_phase.plot([m.phase_at] * 2, [-180.0, m.phase - 180.0], "ko-", ms=4, label=f"phase margin {m.phase:.0f}°")
    open_size.axhline(0.0, color="k", lw=0.6)
    open_phase.axhline(-180.0, color="k", lw=0.6)
    closed_size.axhline(-3.0, color="k", lw=0.6, ls=":")
    for axis, title, limits in ((open_size, "open loop", (-40, 40)), (closed_size, "closed loop", (-20, 5))):
        axis.set(ylabel="amplitude, dB", ylim=limits, title=title)
    for axis in (open_phase, closed_phase):
        axis.set(ylabel="phase, °", xlabel="frequency, Hz", ylim=(-360, 0))
    for axis in (open_size, closed_size, open_phase):
        axis.legend(fontsize=7).set_in_layout(False)
    for axis in (open_size, closed_size, open_phase, closed_phase):
        axis.set_xscale("log")
        axis.grid(alpha=0.3, which="both")
    return figure


def _figure(rows: int, columns: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(11, 4.2 if rows == 1 else 6.0), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())
