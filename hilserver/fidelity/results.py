"""How true a rig is to its virtual circuit: what its machine did under each strategy, beside what it should have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hilserver.fidelity.measures import Deviation, Response, rms_above
from hilserver.numerics.arrays import Floats
from hilserver.rig.cycle import Sine
from hilserver.tick.bridge.ladder import BRIDGING, Strategy
from hilserver.tick.codes import Saturation

NO_BRIDGE = "no compensation"
VARIANTS = {
    NO_BRIDGE: "the virtual valve's command goes straight to the real valve, as one would do without a bridge",
    **{name: Strategy[name].text for name in BRIDGING},
}
CANT = Saturation.CAPACITY | Saturation.NO_DROP | Saturation.RANGE | Saturation.SLEW | Saturation.NEAR_END
"""Flags of a saturation that say that the valve can't do what is asked of it."""
NOISE_CORNER = 0.1
"""A command's noise is what it has above this share of the tick rate."""


@dataclass(frozen=True)
class Quantity:
    """Something that is compared: a name for the reader ("flow A"), SI unit, and how it is known of the machine.

    ``known``: "true" (a simulated machine's own value), "measured" or "estimated". ``other_edge``: the valve that
    serves this port with its other edges, so that it can't follow the virtual circuit there; empty for all others.
    """

    name: str
    unit: str
    known: str = "true"
    other_edge: str = ""


@dataclass(frozen=True)
class Course:
    """A work cycle or a sweep under one strategy: series by quantity or valve, at the ends of the ticks.

    ``real``: what the machine did; ``truth``: the direct simulation, empty without one; ``asked``: the flow that the
    virtual circuit wanted into a port in this very run. ``doubt``: standard deviation of what is estimated, which may
    lie at any frequency; ``scatter``: that of what is measured, from tick to tick.
    ``estimate``: flows as the bridge estimates them, and ``claim``, the standard deviation it states; where real flows
    are true or measured. ``sines``: those of a sweep, s of ``time``. ``rest``: while nothing is asked for.
    """

    time: Floats
    real: Mapping[str, Floats]
    truth: Mapping[str, Floats]
    asked: Mapping[str, Floats]
    command: Mapping[str, Floats]
    saturation: Mapping[str, Floats] = field(default_factory=dict)
    doubt: Mapping[str, float] = field(default_factory=dict)
    scatter: Mapping[str, float] = field(default_factory=dict)
    estimate: Mapping[str, Floats] = field(default_factory=dict)
    claim: Mapping[str, float] = field(default_factory=dict)
    sines: tuple[Sine, ...] = ()
    rest: slice | None = None

    @cached_property
    def deviations(self) -> dict[str, Deviation]:
        """Of every quantity from the direct simulation."""
        return _deviations(self.real, self.truth)

    @cached_property
    def tracking(self) -> dict[str, Deviation]:
        """Of flows from what the virtual circuit asked for in the same run: the bridge alone.

        Without what the machine's pressures make of a deviation.
        """
        return _deviations(self.real, self.asked)

    @cached_property
    def estimation(self) -> dict[str, Deviation]:
        """Of the estimated flows from the real ones."""
        return _deviations(self.estimate, self.real)

    @cached_property
    def responses(self) -> dict[str, tuple[Response, ...]]:
        """Of every quantity to each sine, against the direct simulation."""
        return self._responses(self.truth)

    @cached_property
    def tracking_responses(self) -> dict[str, tuple[Response, ...]]:
        """Of flows to each sine, against what the virtual circuit asked for in the same run."""
        return self._responses(self.asked)

    def _responses(self, reference: Mapping[str, Floats]) -> dict[str, tuple[Response, ...]]:
        return {
            name: tuple(self._response(name, reference[name], sine) for sine in self.sines)
            for name in self.real
            if name in reference and self.sines
        }

    def _response(self, name: str, reference: Floats, sine: Sine) -> Response:
        counts = self.counts(sine)
        fitted = sqrt(2.0 / max(int(counts.sum()), 1))  # what is left of scatter in the amplitude of so many samples
        doubt = self.doubt.get(name, 0.0) + fitted * self.scatter.get(name, 0.0)
        return Response.between(self.time[counts], self.real[name][counts], reference[counts], sine.frequency, doubt)

    def counts(self, sine: Sine) -> NDArray[np.bool_]:
        """The ticks of a sine that count."""
        return (self.time > sine.counts + 1e-9) & (self.time <= sine.ends + 1e-9)

    @property
    def saturated(self) -> float:
        """Share of the ticks in which a valve could not do what was asked for."""
        return self._share_of(slice(None))

    def saturated_at(self, frequency: float) -> float:
        """The same of the ticks that count of a sine."""
        (sine,) = (s for s in self.sines if s.frequency == frequency)
        return self._share_of(self.counts(sine))

    def _share_of(self, ticks: slice | NDArray[np.bool_]) -> float:
        flags = [(line[ticks].astype(np.int64) & CANT) > 0 for line in self.saturation.values()]
        return float(np.mean(np.any(flags, axis=0))) if flags else 0.0

    def noise(self, valve: str, dt: float) -> float:
        """RMS of a command above `NOISE_CORNER`; NaN where the course is too short."""
        return rms_above(self.command[valve], NOISE_CORNER / dt, dt)

    def noise_at_rest(self, valve: str, dt: float) -> float:
        """The same while nothing is asked for; NaN where the course has no rest."""
        if self.rest is None:
            return float("nan")
        return rms_above(self.command[valve][self.rest], NOISE_CORNER / dt, dt)


def _deviations(values: Mapping[str, Floats], reference: Mapping[str, Floats]) -> dict[str, Deviation]:
    return {name: Deviation.between(values[name], reference[name]) for name in values if name in reference}


@dataclass(frozen=True)
class Variant:
    """One way of driving the real valves, and what came of it over work cycle and sweep; None: it was not run."""

    name: str
    cycle: Course | None = None
    sweep: Course | None = None

    @property
    def courses(self) -> tuple[Course, ...]:
        """Those that there are."""
        return tuple(course for course in (self.cycle, self.sweep) if course is not None)

    def saturations(self, valve: str) -> dict[int, float]:
        """Share of all ticks with each flag of a valve's saturation; those that never came are left out."""
        lines = [course.saturation[valve] for course in self.courses if valve in course.saturation]
        flags = np.concatenate(lines or [np.zeros(1)]).astype(np.int64)
        shares = {flag: float(np.mean((flags & flag) > 0)) for flag in Saturation}
        return {flag: share for flag, share in shares.items() if share > 0.0}


@dataclass(frozen=True)
class Fidelity:
    """What a rig and its bridge made of a work cycle and a sweep, under each strategy.

    ``truth``: what it was held against, empty without a direct simulation. ``left_out``: strategies that were not
    tried, with the reason. ``ports_without_valve``: those that nothing drives. ``swept``: the input of the sweep.
    ``notes``: what the reader has to know. ``circuit``: the virtual circuit's table.
    """

    rig: str
    dt: float
    quantities: tuple[Quantity, ...]
    valves: Mapping[str, str]
    variants: tuple[Variant, ...]
    truth: str
    left_out: Mapping[str, str] = field(default_factory=dict)
    ports_without_valve: tuple[str, ...] = ()
    swept: str = ""
    notes: tuple[str, ...] = ()
    circuit: Mapping[str, Any] = field(default_factory=dict)

    def variant(self, name: str) -> Variant:
        """The variant of this name."""
        return next(variant for variant in self.variants if variant.name == name)

    def cycle_errors(self, quantity: str) -> dict[str, Deviation]:
        """Deviation of a quantity over the work cycle from the direct simulation, else the flow asked; by variant."""
        return {
            variant.name: found[quantity]
            for variant in self.variants
            if variant.cycle is not None
            for found in [variant.cycle.deviations if self.truth else variant.cycle.tracking]
            if quantity in found
        }

    def sweep_responses(self, quantity: str) -> dict[str, tuple[Response, ...]]:
        """Responses of a quantity to the sines, by variant, against the same."""
        return {
            variant.name: found[quantity]
            for variant in self.variants
            if variant.sweep is not None
            for found in [variant.sweep.responses if self.truth else variant.sweep.tracking_responses]
            if quantity in found
        }

    def best(self, quantity: str) -> str:
        """The variant with the smallest deviation of a quantity over the work cycle."""
        errors = self.cycle_errors(quantity)
        return min(errors, key=lambda name: errors[name].rms)

    def gain(self, quantity: str, over: str) -> float:
        """How many times smaller the best deviation is than that of variant ``over``."""
        errors = self.cycle_errors(quantity)
        best = errors[self.best(quantity)].rms
        return errors[over].rms / best if best > 0.0 else float("inf")
