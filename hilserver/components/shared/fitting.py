"""Model parameters from datasheet curves: Bode points, flow over signal, relief p-Q points.

Plain least squares on a handful of points read off a diagram. All functions take SI values and raise ValueError with a
message for the user, so that a component may call them from its validators.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, fsum, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from hilserver.components.base import Table
from hilserver.numerics.arrays import Floats
from hilserver.units import Flow, Frequency, Number, Pressure

BodePoint = tuple[Frequency, Number, Number]
"""A point of a Bode plot as on the datasheet: ``["30 Hz", -0.8, -45]``: frequency, gain in dB, phase in degrees."""
SignalPoint = tuple[Number, Flow]
"""A point of a flow-signal curve: ``[0.5, "18 l/min"]``: signal as a fraction of full scale, flow."""
PressureFlowPoint = tuple[Pressure, Flow]
"""A point of a p-Q curve: ``["5 bar", "20 l/min"]``: pressure, flow."""

LARGEST_BODE_ERROR = 0.3
"""Root mean square of |G/G_fit - 1| up to which a Bode plot is accepted as second order."""
LARGEST_DIP = 0.03
"""Fraction of the maximum flow by which a flow-signal curve may fall (reading errors, which are smoothed)."""
LARGEST_FLOW_ERROR = 0.15
"""Permitted relative deviation of the fitted relief curve from the flow at a point."""
MIN_SHARE = 0.2
"""Away from the points of a relief curve, C_1 + C_2·p is at least this fraction of its value at their centre."""


# --- Bode plots -------------------------------------------------------------------------------------------------------


def fit_bode(points: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    r"""Natural frequency omega (rad/s) and damping ratio d of a second-order lag from points of its Bode plot.

    ``points``: (frequency in 1/s, gain in dB, phase in degrees, negative), at least two, some of them near -90°.

    .. math:: \frac{1}{G} = 1 - \frac{w^2}{\omega^2} + \mathrm{j}\,\frac{2 d}{\omega}\,w

    is linear in its two unknowns; the sum of \|G/G_fit - 1\|² is minimised (a relative error of 0.1 is 0.9 dB or 6°).
    Raises ValueError for points that no second-order lag fits. Source: Levy, Complex-curve fitting, IRE Trans.
    Automatic Control 4 (1959).

    >>> omega, d = fit_bode([(10.0, 0.0, -16.3), (50.0, -2.9, -90.0), (80.0, -8.7, -124.9)])
    >>> round(omega / (2 * pi), 1), round(d, 2)
    (50.0, 0.7)
    """
    w, G = _response(points)
    scale = float(w.max())
    r = w / scale
    columns = np.stack([-G * r * r, 1j * G * r], axis=1)  # times (scale/omega)², 2·d·scale/omega: G/G_fit - G
    square, linear = _two_unknowns(_real_rows(columns), _real_rows(1.0 - G))
    if square <= 0.0 or linear <= 0.0:
        raise ValueError(
            "these Bode points determine no natural frequency and damping: give points up to a phase of -90° or beyond"
        )
    omega = scale / sqrt(square)
    d = 0.5 * float(linear) / sqrt(square)
    error = bode_error(points, omega, d)
    if error > LARGEST_BODE_ERROR:
        raise ValueError(
            f"these Bode points are not those of a second-order lag: the best fit ({omega / (2 * pi):.3g} Hz, "
            f"damping {d:.2g}) is {100 * error:.0f} % off; leave out the points far beyond -90°, where delays show"
        )
    return omega, d


def bode_error(points: Sequence[tuple[float, float, float]], omega: float, d: float) -> float:
    """Root mean square of |G/G_fit - 1| over the points of a Bode plot; 0.1 is 0.9 dB or 6°."""
    w, G = _response(points)
    return float(np.sqrt(np.mean(np.abs(G * (1.0 - (w / omega) ** 2 + 2j * d * w / omega) - 1.0) ** 2)))


def fit_f45(points: Sequence[tuple[float, float, float]]) -> float:
    """Frequency (1/s) at which the phase is -45°: the corner of the first-order lag nearest to a Bode plot's phases.

    Each point between 0 and -90° gives a corner frequency, f/tan(-phase); their logarithms are averaged, each with
    the weight sin²(2·phase), according to its sensitivity to a reading error of the phase. Points beyond -90° contain
    no information about a first-order lag. Raises ValueError if no point lies within -20° … -70°.

    >>> round(fit_f45([(10.0, 0.0, -18.4), (30.0, -3.0, -45.0), (90.0, -10.0, -71.6)]), 2)
    30.0
    """
    _response(points)
    frequency, _, phase = np.array(points, dtype=float).T
    if not np.any((phase <= -20.0) & (phase >= -70.0)):
        raise ValueError("no Bode point has a phase near -45°: give points between -20° and -70°")
    near = (phase < 0.0) & (phase > -90.0)
    angle = np.radians(-phase[near])
    corners = np.log(frequency[near] / np.tan(angle))
    return exp(float(np.average(corners, weights=np.sin(2.0 * angle) ** 2)))


def _response(points: Sequence[tuple[float, float, float]]) -> tuple[Floats, NDArray[np.complex128]]:
    """Angular frequencies and complex gains; ValueError if they can't be points of a Bode plot."""
    frequency, gain, phase = np.array(points, dtype=float).reshape(-1, 3).T
    if len(frequency) < 2:
        raise ValueError("a Bode plot requires at least two points: [frequency, gain in dB, phase in degrees]")
    if frequency[0] <= 0.0 or np.any(np.diff(frequency) <= 0.0):
        raise ValueError("the frequencies of Bode points must be positive and increase from point to point")
    if np.any(phase > 0.0) or np.any(phase < -360.0):
        raise ValueError("the phase of a Bode point is in degrees, negative where the valve lags: -45, not 45")
    return 2.0 * pi * frequency, 10.0 ** (gain / 20.0) * np.exp(1j * np.radians(phase))


def _real_rows(complex_rows: NDArray[np.complex128]) -> Floats:
    """Complex equations as twice as many real ones."""
    return np.concatenate([complex_rows.real, complex_rows.imag])


# --- flow over signal -------------------------------------------------------------------------------------------------


def flow_signal_table(points: Sequence[tuple[float, float]], drop: float) -> Table:
    """The flow coefficient of an edge, m³/(s·sqrt(Pa)), over the signal, from a flow-signal curve at constant drop.

    ``points``: (signal, flow in m³/s) with rising signal, from closed to open; ``drop`` over this edge, Pa, turbulent.
    Small dips of the flow (reading errors) are smoothed, so that the coefficient never falls. Raises ValueError for
    points that are no such curve. :func:`opening_table` splits it into an opening of 0 … 1 and one coefficient.

    >>> flow_signal_table([(0.0, 0.0), (0.1, 0.0), (1.0, 1e-3)], 1e6)
    Table(x=(0.0, 0.1, 1.0), y=(0.0, 0.0, 1e-06))
    """
    if len(points) < 2:
        raise ValueError("a flow-signal curve requires at least two points: [signal, flow]")
    signal, flow = np.array(points, dtype=float).T
    if np.any(np.diff(signal) <= 0.0):
        raise ValueError("the signals of a flow-signal curve must increase from point to point")
    if drop <= 0.0 or np.any(flow < 0.0) or flow.max() <= 0.0:
        raise ValueError("a flow-signal curve requires a positive drop and flows of at least 0, the last one above 0")
    dip = float(np.max(np.maximum.accumulate(flow) - flow))
    if dip > LARGEST_DIP * flow.max():
        raise ValueError(
            f"the flow falls with rising signal, by {100 * dip / flow.max():.0f} % of the maximum: give the curve of "
            "one edge, from closed to open"
        )
    return Table(tuple(signal.tolist()), tuple((_rising(flow) / sqrt(drop)).tolist()))


def opening_table(coefficients: Table) -> tuple[Table, float]:
    """Split a table of coefficients into an opening of 0 … 1 over the signal and the coefficient at full opening.

    >>> opening_table(Table((0.0, 0.5, 1.0), (0.0, 1e-7, 4e-7)))
    (Table(x=(0.0, 0.5, 1.0), y=(0.0, 0.25, 1.0)), 4e-07)
    """
    full = max(coefficients.y)
    return Table(coefficients.x, tuple(value / full for value in coefficients.y)), full


def _rising(values: Floats) -> Floats:
    """The closest non-decreasing values (least squares): neighbours that fall are replaced by their mean, repeatedly.

    Source: Barlow, Bartholomew, Bremner & Brunk, Statistical Inference under Order Restrictions, 1972 (pool adjacent
    violators).
    """
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((float(value), 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (low, n), (high, m) = pools.pop(-2), pools.pop()
            pools.append(((low * n + high * m) / (n + m), n + m))
    return np.repeat([mean for mean, _ in pools], [count for _, count in pools])


# --- relief valves ----------------------------------------------------------------------------------------------------


def fit_relief(
    opening_pressure: float, points: Sequence[tuple[float, float]], positive_at: Sequence[float] = ()
) -> tuple[float, float, float]:
    r"""C_1, C_2 of the relief curve through p-Q points, and the maximum relative error of the flow at them.

    ``points``: (pressure above opening in Pa, flow in m³/s), both rising, at least two.

    .. math:: Q = \frac{(p - p_{ref})\sqrt{p}}{C_1 + C_2\,p} \quad\Leftrightarrow\quad
       C_1 + C_2\,p = y, \quad y = \frac{(p - p_{ref})\sqrt{p}}{Q}

    The sum of ((C_1 + C_2·p)/y - 1)², of relative errors of the flow, is minimised. Two points are met exactly. With
    more, the line C_1 + C_2·p is kept positive at the pressures ``positive_at`` (the ends of the working range). Raises
    ValueError if the points don't increase, or the curve misses one by more than 15 % of its flow.
    Source: theory §3; [Virtual hydraulics] ch. 4.2 (Handroos & Vilenius).

    >>> C_1, C_2, error = fit_relief(150e5, [(5e5, 20e-3 / 60), (15e5, 60e-3 / 60)])
    >>> f"{C_1:.1e} {C_2:.1e}"
    '3.0e+12 1.9e+05'
    """
    if len(points) < 2:
        raise ValueError("give at least two points of the p-Q curve: pressure above opening, flow")
    over, flow = np.array(points, dtype=float).T
    if over[0] <= 0.0 or flow[0] <= 0.0 or np.any(np.diff(over) <= 0.0) or np.any(np.diff(flow) <= 0.0):
        raise ValueError(
            "a relief curve rises from the opening pressure: give points above it with rising pressure and flow"
        )
    p = opening_pressure + over
    y = over * np.sqrt(p) / flow
    middle = float(p.mean())  # the line's height at the middle and its slope: a well-conditioned pair
    matrix = np.stack([1.0 / y, (p - middle) / p.max() / y], axis=1)
    height, slope = _two_unknowns(matrix, np.ones_like(y))
    C_2 = float(slope) / float(p.max())
    C_1 = float(height) - C_2 * middle
    for end in positive_at if len(points) > 2 else ():
        if C_1 + C_2 * end < MIN_SHARE * (C_1 + C_2 * middle):
            shape = (1.0 - (1.0 - MIN_SHARE) * (p - middle) / (end - middle)) / y
            level = fsum(shape) / fsum(shape * shape)
            C_2 = -level * (1.0 - MIN_SHARE) / (end - middle)
            C_1 = level - C_2 * middle
    fitted = C_1 + C_2 * p
    if np.any(fitted <= 0.0) or (error := float(np.max(np.abs(y / fitted - 1.0)))) > LARGEST_FLOW_ERROR:
        missed = "a point entirely" if np.any(fitted <= 0.0) else f"a point by {100 * error:.0f} % of its flow"
        raise ValueError(
            f"no curve Q = (p - p_ref)·sqrt(p)/(C1 + C2·p) fits all points: the best one misses {missed}, at "
            f"most {100 * LARGEST_FLOW_ERROR:.0f} % is allowed; check the readings, or give only two points"
        )
    return C_1, C_2, error


def _two_unknowns(matrix: Floats, wanted: Floats) -> tuple[float, float]:
    """Least squares with two unknowns, by the normal equations in exact sums: the same bits on every processor."""
    a, b = matrix.T
    aa, ab, bb = fsum(a * a), fsum(a * b), fsum(b * b)
    wa, wb = fsum(a * wanted), fsum(b * wanted)
    determinant = aa * bb - ab * ab
    if determinant <= 1e-14 * aa * bb:  # one of them would do: the smallest solution
        return wa / (aa + bb), wb / (aa + bb)
    return (wa * bb - wb * ab) / determinant, (wb * aa - wa * ab) / determinant
