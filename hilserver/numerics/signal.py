"""Shapes of test signals and of an operator's lever."""

from __future__ import annotations

from math import exp, pi

from hilserver.numerics.compilable import compilable
from hilserver.numerics.shape import clip


@compilable
def sweep_phase(t: float, f_0: float, f_1: float, growth: float, T: float) -> float:
    r"""Phase in rad of a sweep from frequency f_0 (t = 0) to f_1 (t = T): 2·pi times the integral of the frequency.

    .. math:: f = f_0 + (f_1 - f_0)\,t/T \quad \mathrm{or} \quad f = f_0\,e^{g t/T},\; g = \ln(f_1/f_0)

    ``growth`` is g, or 0 for a linear sweep.

    >>> round(sweep_phase(1.0, 1.0, 3.0, 0.0, 1.0) / pi, 12)
    4.0
    >>> from math import log
    >>> round(sweep_phase(1.0, 1.0, 3.0, log(3.0), 1.0) / (2.0 * pi * 2.0 / log(3.0)), 12)
    1.0
    """
    if growth == 0.0:
        return 2.0 * pi * (f_0 + 0.5 * (f_1 - f_0) * t / T) * t
    return 2.0 * pi * f_0 * T / growth * (exp(growth * t / T) - 1.0)


@compilable
def lever_curve(x: float, deadband: float, saturation: float, expo: float) -> float:
    """Command of a lever at x (-1 … 1): 0 within the deadband, full from the saturation on.

    In between linear (expo 0) to cubic (expo 1), with a low gain near the middle: (1 - expo)·s + expo·s³.

    >>> lever_curve(0.05, 0.1, 0.9, 0.0), lever_curve(-0.5, 0.1, 0.9, 0.0), lever_curve(0.5, 0.1, 0.9, 1.0)
    (0.0, -0.5, 0.125)
    """
    s = clip((abs(x) - deadband) / (saturation - deadband), 0.0, 1.0)
    y = (1.0 - expo) * s + expo * s * s * s
    return y if x >= 0.0 else -y
