"""Figures of a run: a quantity over time reduced to a number, such as ``max(supply.p)``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import numpy as np
from pydantic import Field, ValidationError, model_validator

from hilserver.components.base import Datasheet
from hilserver.errors import ConfigurationError, Problem, as_sentence, did_you_mean, problems_of, shown
from hilserver.fidelity.measures import Deviation, rms_above
from hilserver.fidelity.results import NOISE_CORNER
from hilserver.numerics.arrays import Floats
from hilserver.tolerances import Toleranced
from hilserver.units import Time, shown_value, value_and_unit

SETTLED = 0.02
"""Of the change from the first to the final value: within ± this, a quantity has settled."""
RISE = (0.1, 0.9)
"""Of this change: between these fractions a quantity rises."""
_FORM = re.compile(r"\s*([a-z_]+)\s*\(\s*(.+?)\s*\)\s*")


def _change(values: Floats) -> Floats:
    """0 at the first value, 1 at the final one; NaN if they are the same."""
    span = values[-1] - values[0]
    return (values - values[0]) / span if span != 0.0 else np.full(len(values), nan)


def _crossing(time: Floats, part: Floats, level: float) -> float:
    """When a quantity first reaches a level, between ticks by a straight line; NaN if it never does."""
    above = part >= level
    if not above.any():
        return nan
    k = int(np.argmax(above))
    if k == 0:
        return float(time[0])
    return float(time[k - 1] + (level - part[k - 1]) / (part[k] - part[k - 1]) * (time[k] - time[k - 1]))


def _rise_time(time: Floats, values: Floats, nominal: Floats) -> float:
    part = _change(values)
    return _crossing(time, part, RISE[1]) - _crossing(time, part, RISE[0])


def _overshoot(time: Floats, values: Floats, nominal: Floats) -> float:
    return max(float(_change(values).max()) - 1.0, 0.0) if values[-1] != values[0] else nan


def _settling_time(time: Floats, values: Floats, nominal: Floats) -> float:
    part = _change(values)
    outside = np.flatnonzero(~(np.abs(part - 1.0) <= SETTLED))
    if not np.isfinite(part).all():
        return nan
    return float(time[min(int(outside[-1]) + 1, len(time) - 1)] - time[0]) if len(outside) else 0.0


def _noise(time: Floats, values: Floats, nominal: Floats) -> float:
    tick = float(time[1] - time[0]) if len(time) > 1 else 1.0
    return rms_above(values, NOISE_CORNER / tick, tick)


def _mean(time: Floats, values: Floats, nominal: Floats) -> float:
    return float(values.mean())


def _nrmse(time: Floats, values: Floats, nominal: Floats) -> float:
    return Deviation.between(values, nominal).nrmse


def _rms(time: Floats, values: Floats, nominal: Floats) -> float:
    return float(np.sqrt(np.mean(values * values)))


Reduction = Callable[[Floats, Floats, Floats], float]
"""Of the time, s, the values, and the values of the nominal run."""
REDUCTIONS: Mapping[str, Reduction] = {
    "max": lambda time, values, nominal: float(values.max()),
    "min": lambda time, values, nominal: float(values.min()),
    "mean": _mean,
    "rms": _rms,
    "final": lambda time, values, nominal: float(values[-1]),
    "range": lambda time, values, nominal: float(np.ptp(values)),
    "rise_time": _rise_time,
    "overshoot": _overshoot,
    "settling_time": _settling_time,
    "nrmse": _nrmse,
    "noise": _noise,
}
"""The reductions by name. Rise time, overshoot and settling time are those of the change from the first to the final
value: the time from 10 % to 90 % of it, s; by how much it is exceeded, as a fraction of it; the time after which the
quantity stays within 2 % of it, s. ``nrmse``: RMS of the deviation from the nominal run, as a fraction of its range.
``noise``: RMS of the part above a tenth of the tick rate."""
FIDELITY, SATURATED, MARGIN, PASSED, RECORDED = "fidelity", "saturated", "margin", "passed", "nrmse_recorded"
AMPLITUDE_ERROR, PHASE_ERROR, DELAY = "amplitude_error", "phase_error", "delay"
SPECIAL: Mapping[str, Reduction] = {
    FIDELITY: _nrmse,
    SATURATED: _mean,
    MARGIN: _mean,
    **dict.fromkeys((AMPLITUDE_ERROR, PHASE_ERROR, DELAY), _mean),
    PASSED: _mean,
    RECORDED: _nrmse,
}
"""Reductions of what only rigs, sequences and logs have. ``fidelity``: the same deviation, from the reference
simulation of the same variant; ``saturated``: share of the time in which a valve can't pass the requested flow;
``margin``: of capacity, speed or delay, as `hilserver check` states them, 1 or less is insufficient;
``amplitude_error``, ``phase_error``, ``delay``: of the response to sines, against the same simulation;
``passed``: share of verdicts that passed; ``nrmse_recorded``: the same deviation, from what a log has recorded."""
RESERVED = ("variant", "ended", "failure")
"""Names of columns that are not figures."""
_WITHOUT_TIME = (PASSED, MARGIN, AMPLITUDE_ERROR, PHASE_ERROR, DELAY)
_OWN_UNITS = {"rise_time": "s", "settling_time": "s", **dict.fromkeys(("overshoot", "nrmse", RECORDED), "")}


class FigureSettings(Datasheet):
    """A figure in a study file."""

    figure: str = Field(description="reduction of a quantity of the run", examples=["max(supply.p)"])
    start: Time | None = Field(default=None, ge=0, description="start of the part of the run; default: 0 s")
    end: Time | None = Field(default=None, gt=0, description="end of this part; default: that of the run")
    below: str | float | None = Field(default=None, description="limit that the figure should not exceed")
    above: str | float | None = Field(default=None, description="limit below which the figure should not be")

    @model_validator(mode="after")
    def _some_time(self) -> FigureSettings:
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise ValueError("start must be less than end")
        return self


@dataclass(frozen=True)
class Figure:
    """A figure: a reduction of a quantity of the run from ``start`` to ``end``, s; SI ``unit``, limits in it."""

    name: str
    reduction: str
    quantity: str
    unit: str
    start: float = 0.0
    end: float = inf
    below: float = inf
    above: float = -inf

    def of(self, time: Floats, values: Floats, nominal: Floats) -> float:
        """The figure of a run, from the values and those that they are compared with; NaN if it has none."""
        part = slice(*np.searchsorted(time, [self.start, self.end + 1e-9]).tolist())
        if part.start >= min(part.stop, len(time)):
            return nan
        return {**REDUCTIONS, **SPECIAL}[self.reduction](time[part], values[part], nominal[part])

    @property
    def text(self) -> str:
        """As in a study file."""
        return f"{self.reduction}({self.quantity})"

    @property
    def has_limits(self) -> bool:
        """Whether it is to be within limits."""
        return self.below < inf or self.above > -inf

    def shown(self, value: float) -> str:
        """A value in the unit in which it is shown."""
        if np.isinf(value):
            return "∞" if value > 0.0 else "-∞"
        return shown_value(value, self.unit) if np.isfinite(value) else "–"


def read_figures(
    raw: Mapping[str, Any],
    quantities: Mapping[str, str],
    duration: float,
    file: str,
    special: Mapping[str, Mapping[str, str]] | None = None,
) -> tuple[Figure, ...]:
    """The figures of a study. ``quantities``: those of its runs, with their units; ``special``: by reduction, what only
    that can reduce.

    Raises ConfigurationError with all problems.
    """
    found, problems = list[Figure](), list[Problem]()
    known = {**dict.fromkeys(REDUCTIONS, quantities), **(special or {})}
    for name, given in raw.items():
        key = f"figures.{name}"
        try:
            if name in RESERVED:
                raise ValueError(f"{name} is a column of the table already: give the figure another name")
            table = {"figure": given} if isinstance(given, str) else given
            found.append(_figure(name, FigureSettings.model_validate(table), known, duration))
        except ValidationError as error:
            problems += problems_of(error, given, file=file, prefix=key, names=FigureSettings.model_fields)
        except ValueError as error:
            problems.append(Problem(as_sentence(error), key, file))
    if not raw:
        problems.append(Problem('there is none: give at least one, such as peak = "max(supply.p)".', "figures", file))
    if problems:
        raise ConfigurationError(problems)
    return tuple(found)


def _figure(name: str, given: FigureSettings, known: Mapping[str, Mapping[str, str]], duration: float) -> Figure:
    form = _FORM.fullmatch(given.figure)
    if form is None:
        raise ValueError(f'{shown(given.figure)} is not a reduction of a quantity; write it like "max(supply.p)"')
    reduction, quantity = form.groups()
    if reduction not in known:
        only = " of this study, but of a rig, a test sequence or a log" if reduction in SPECIAL else ""
        raise ValueError(f"{reduction} is not a reduction{only}.{did_you_mean(reduction, known)}")
    if quantity not in known[reduction]:
        what = f"not a quantity to which {reduction} applies" if reduction in SPECIAL else "not a quantity of the run"
        what = "not recorded in the log" if reduction == RECORDED else what
        raise ValueError(f"{quantity} is {what}.{did_you_mean(quantity, known[reduction])}")
    if (given.start or 0.0) >= duration:
        raise ValueError(f"start: {given.start:g} s is after the end of the run, {duration:g} s")
    if given.end is not None and given.end > (1.0 + 1e-9) * duration:
        raise ValueError(f"end: {given.end:g} s is after the end of the run, {duration:g} s")
    if reduction in _WITHOUT_TIME and (given.start is not None or given.end is not None):
        raise ValueError("start and end are for quantities over time, not for verdicts, margins and sines")
    unit = _OWN_UNITS.get(reduction, known[reduction][quantity])
    limits = (_limit(given.below, unit, inf), _limit(given.above, unit, -inf))
    end = inf if given.end is None else given.end
    return Figure(name, reduction, quantity, unit, given.start or 0.0, end, *limits)


def _limit(given: str | float | None, unit: str, default: float) -> float:
    if given is None:
        return default
    value, own = value_and_unit(given)
    if isinstance(given, Toleranced) or own != unit:
        raise ValueError(
            f"the limit {shown(given)} is measured in {own or 'no unit'}, the figure in {unit or 'no unit'}"
        )
    return value
