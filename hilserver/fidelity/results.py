"""Fidelity of a rig: how closely its machine follows the reference simulation under each bridge strategy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hilserver.fidelity.measures import Deviation, Response, rms_above
from hilserver.numerics.arrays import Floats
from hilserver.rig.cycle import Sine
from hilserver.simulation.balance import Balance, balance_texts
from hilserver.simulation.pacing import Paced
from hilserver.simulation.step_error import StepError
from hilserver.tick.bridge.strategies import BRIDGING, Strategy
from hilserver.tick.codes import Saturation

NO_BRIDGE = "no compensation"
SIMULATED_REFERENCE, VIRTUAL_CIRCUIT = "reference simulation", "virtual circuit"
SIMULATED_MACHINE = "simulated machine"
"""What a run has balances of."""
VARIANTS = {
    NO_BRIDGE: "the virtual valve's command is passed on to the real valve, as without a bridge",
    **{name: Strategy[name].text for name in BRIDGING},
}
LIMITED = Saturation.CAPACITY | Saturation.NO_DROP | Saturation.RANGE | Saturation.SLEW | Saturation.NEAR_END
"""Saturation flags of a valve that can't pass the requested flow."""
NOISE_CORNER = 0.1
"""Fraction of the tick rate above which a command counts as noise."""
SATURATED_SHARE = 0.05
"""Fraction of a sine's ticks with a saturated valve from which its results show the limits of the valve."""


@dataclass(frozen=True)
class ComparedQuantity:
    """A quantity that is compared: its name for the reader ("flow A"), its SI unit, and how the actual value is known.

    ``known``: "true" (a value inside the simulated machine), "measured" or "estimated". ``other_edge``: the valve that
    supplies this port through its other edges, so that it can't follow the virtual circuit there; empty otherwise.
    """

    name: str
    unit: str
    known: str = "true"
    other_edge: str = ""


@dataclass(frozen=True)
class SegmentResult:
    """A work cycle or a sweep under one strategy: time series by quantity or valve, at the ends of the ticks, SI.

    ``actual``: of the machine; ``reference``: of the reference simulation, empty without one; ``virtual``: flows that
    the virtual circuit requested in the same run. ``uncertainty``: standard deviation of estimated quantities, which
    may lie at any frequency; ``sensor_noise``: that of measured ones, independent from tick to tick.
    ``estimate``: flows as the bridge estimates them, where the actual ones are true or measured;
    ``stated_deviation``: the standard deviation that the bridge states for them. ``sines``: those of a sweep, in
    seconds of ``time``. ``rest``: the ticks before a sweep in which nothing moves. ``balances``: of the reference
    simulation and, where the run kept accounts, of the virtual circuit and the simulated machine, by their names.
    ``notes``: on mechanisms that come to a change point.
    """

    time: Floats
    actual: Mapping[str, Floats]
    reference: Mapping[str, Floats]
    virtual: Mapping[str, Floats]
    command: Mapping[str, Floats]
    saturation: Mapping[str, Floats] = field(default_factory=dict)
    uncertainty: Mapping[str, float] = field(default_factory=dict)
    sensor_noise: Mapping[str, float] = field(default_factory=dict)
    estimate: Mapping[str, Floats] = field(default_factory=dict)
    stated_deviation: Mapping[str, float] = field(default_factory=dict)
    sines: tuple[Sine, ...] = ()
    rest: slice | None = None
    balances: Mapping[str, Balance] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @cached_property
    def deviations(self) -> dict[str, Deviation]:
        """Deviation of every quantity from the reference simulation."""
        return _deviations(self.actual, self.reference)

    @cached_property
    def tracking(self) -> dict[str, Deviation]:
        """Deviation of the flows from the virtual flows of the same run: the error of the bridge alone."""
        return _deviations(self._over_ticks, self.virtual)

    @cached_property
    def _over_ticks(self) -> dict[str, Floats]:
        """The actual values as means over the ticks, as the virtual flows are."""
        return {name: 0.5 * (v + np.concatenate([v[:1], v[:-1]])) for name, v in self.actual.items()}

    @cached_property
    def estimation(self) -> dict[str, Deviation]:
        """Deviation of the estimated flows from the actual ones."""
        return _deviations(self.estimate, self.actual)

    @cached_property
    def responses(self) -> dict[str, tuple[Response, ...]]:
        """Response of every quantity to each sine, against the reference simulation."""
        return self._responses(self.actual, self.reference)

    @cached_property
    def tracking_responses(self) -> dict[str, tuple[Response, ...]]:
        """Response of the flows to each sine, against the virtual flows of the same run."""
        return self._responses(self._over_ticks, self.virtual)

    def _responses(
        self, values: Mapping[str, Floats], reference: Mapping[str, Floats]
    ) -> dict[str, tuple[Response, ...]]:
        return {
            name: tuple(self._response(name, values[name], reference[name], sine) for sine in self.sines)
            for name in values
            if name in reference and self.sines
        }

    def _response(self, name: str, values: Floats, reference: Floats, sine: Sine) -> Response:
        ticks = self.evaluated(sine)
        averaged = sqrt(2.0 / max(int(ticks.sum()), 1))  # share of the noise left in an amplitude of so many samples
        deviation = self.uncertainty.get(name, 0.0) + averaged * self.sensor_noise.get(name, 0.0)
        return Response.between(self.time[ticks], values[ticks], reference[ticks], sine.frequency, deviation)

    def evaluated(self, sine: Sine) -> NDArray[np.bool_]:
        """The ticks of a sine that are evaluated: whole periods after it has settled."""
        return (self.time > sine.counts + 1e-9) & (self.time <= sine.ends + 1e-9)

    @property
    def saturated(self) -> float:
        """Fraction of the ticks in which a valve could not pass the requested flow."""
        return self._share_of(slice(None))

    def saturated_at(self, frequency: float) -> float:
        """The same for the evaluated ticks of the sine with this frequency, Hz."""
        (sine,) = (s for s in self.sines if s.frequency == frequency)
        return self._share_of(self.evaluated(sine))

    def _share_of(self, ticks: slice | NDArray[np.bool_]) -> float:
        flags = [(series[ticks].astype(np.int64) & LIMITED) > 0 for series in self.saturation.values()]
        return float(np.mean(np.any(flags, axis=0))) if flags else 0.0

    def noise(self, valve: str, dt: float) -> float:
        """RMS of a command above `NOISE_CORNER`; NaN where the segment is too short."""
        return rms_above(self.command[valve], NOISE_CORNER / dt, dt)

    def noise_at_rest(self, valve: str, dt: float) -> float:
        """The same at rest; NaN where the segment has no rest."""
        if self.rest is None:
            return float("nan")
        return rms_above(self.command[valve][self.rest], NOISE_CORNER / dt, dt)


def _deviations(values: Mapping[str, Floats], reference: Mapping[str, Floats]) -> dict[str, Deviation]:
    return {name: Deviation.between(values[name], reference[name]) for name in values if name in reference}


@dataclass(frozen=True)
class Variant:
    """One way of driving the real valves, and its results over work cycle and sweep; None if it did not run."""

    name: str
    cycle: SegmentResult | None = None
    sweep: SegmentResult | None = None

    @property
    def segments(self) -> tuple[SegmentResult, ...]:
        """The segments that were run."""
        return tuple(segment for segment in (self.cycle, self.sweep) if segment is not None)

    def saturations(self, valve: str) -> dict[int, float]:
        """Fraction of all ticks with each saturation flag of a valve; flags that never occurred are left out."""
        series = [segment.saturation[valve] for segment in self.segments if valve in segment.saturation]
        flags = np.concatenate(series or [np.zeros(1)]).astype(np.int64)
        shares = {flag: float(np.mean((flags & flag) > 0)) for flag in Saturation}
        return {flag: share for flag, share in shares.items() if share > 0.0}


@dataclass(frozen=True)
class Fidelity:
    """How closely a rig followed its virtual circuit over a work cycle and a sweep, under each strategy.

    ``reference``: describes the reference simulation; empty without one. ``left_out``: strategies that were not tried,
    with the reason. ``tripped``: strategies with which the rig did not complete the run, with cause and time.
    ``ports_without_valve``: ports that no valve drives. ``swept``: the input of the sweep. ``notes``: what the reader
    must know. ``circuit``: the virtual circuit as a table. ``paced``: how well paced runs kept to the clock.
    ``error``: that of the integrator's step, if it was determined.
    """

    rig: str
    dt: float
    quantities: tuple[ComparedQuantity, ...]
    valves: Mapping[str, str]
    variants: tuple[Variant, ...]
    reference: str
    left_out: Mapping[str, str] = field(default_factory=dict)
    tripped: Mapping[str, str] = field(default_factory=dict)
    ports_without_valve: tuple[str, ...] = ()
    swept: str = ""
    notes: tuple[str, ...] = ()
    circuit: Mapping[str, Any] = field(default_factory=dict)
    paced: Paced | None = None
    error: StepError | None = None

    def variant(self, name: str) -> Variant:
        """The variant of this name."""
        return next(variant for variant in self.variants if variant.name == name)

    def balances(self) -> tuple[tuple[str, str], ...]:
        """The balances over the work cycle in words: of the reference simulation, and of the run that followed it best.

        Each of oil and of energy; empty where none are known.
        """
        runs = {v.name: v.cycle for v in self.variants if v.cycle is not None and len(v.cycle.balances) > 1}
        runs = runs or {v.name: v.cycle for v in self.variants if v.cycle is not None and v.cycle.balances}
        errors = [self.cycle_errors(q.name) for q in self.followed()]
        best = min(runs, key=lambda name: sum(e[name].nrmse for e in errors if name in e), default=None)
        return tuple(
            (f"{name} of the {what}{'' if what == SIMULATED_REFERENCE else f' with strategy {best}'}", text)
            for what, found in (runs[best].balances.items() if best is not None else ())
            for name, text in balance_texts(found, found.energy.mechanisms != 0.0)
        )

    def followed(self) -> list[ComparedQuantity]:
        """The quantities that the valves are to follow: positions and speeds, and flows into their own ports."""
        return followed_by(self.quantities)

    def cycle_errors(self, quantity: str) -> dict[str, Deviation]:
        """Deviation of a quantity over the work cycle, by variant.

        From the reference simulation; without one, from the virtual flow of the same run.
        """
        return {
            variant.name: found[quantity]
            for variant in self.variants
            if variant.cycle is not None
            for found in [variant.cycle.deviations if self.reference else variant.cycle.tracking]
            if quantity in found
        }

    def sweep_responses(self, quantity: str) -> dict[str, tuple[Response, ...]]:
        """Responses of a quantity to the sines, by variant, against the same."""
        return {
            variant.name: found[quantity]
            for variant in self.variants
            if variant.sweep is not None
            for found in [variant.sweep.responses if self.reference else variant.sweep.tracking_responses]
            if quantity in found
        }

    def tracking(self, quantity: str) -> dict[str, Deviation]:
        """Deviation of a flow over the work cycle from the virtual flow of the same run, by variant."""
        return {v.name: v.cycle.tracking[quantity] for v in self.variants if v.cycle and quantity in v.cycle.tracking}

    def valve_tracking(self, valve: str) -> dict[str, Deviation]:
        """The same for the flow of a valve; empty if `cycle_errors` contains it."""
        return self.tracking(f"flow {self.valves[valve]}") if self.reference else {}

    def unachievable(self) -> dict[float, float]:
        """Frequencies, Hz, at which the highest strategy that was tried saturates a valve, with the share of the ticks.

        The same for all strategies, so that they are compared where the requested flow is achievable.
        """
        swept = {v.name: v.sweep for v in self.variants if v.sweep is not None}
        if not swept:
            return {}
        sweep = swept[highest_strategy(swept)]
        shares = {sine.frequency: sweep.saturated_at(sine.frequency) for sine in sweep.sines}
        return {frequency: share for frequency, share in shares.items() if share > SATURATED_SHARE}

    def best(self, quantity: str) -> str:
        """The variant with the smallest deviation of a quantity over the work cycle."""
        errors = self.cycle_errors(quantity)
        return min(errors, key=lambda name: errors[name].rms)

    def gain(self, quantity: str, over: str) -> float:
        """Factor by which the best deviation is smaller than that of variant ``over``."""
        errors = self.cycle_errors(quantity)
        best = errors[self.best(quantity)].rms
        return errors[over].rms / best if best > 0.0 else float("inf")


def followed_by(quantities: Iterable[ComparedQuantity]) -> list[ComparedQuantity]:
    """Those that the valves are to follow: positions and speeds, and flows into their own ports."""
    return [q for q in quantities if q.unit != "Pa" and not q.other_edge]


def highest_strategy(variants: Mapping[str, object]) -> str:
    """The highest of these variants on the ladder of strategies."""
    levels = [s.name for s in Strategy if s.name in variants and not s.kind.integrates]
    return levels[-1] if levels else list(variants)[-1]
