"""The fidelity of a rig in sentences: the best strategy and its benefit, what is unachievable, what was left out."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from hilserver.fidelity.measures import Deviation, largest_errors
from hilserver.fidelity.results import NO_BRIDGE, Fidelity, highest_strategy
from hilserver.fidelity.tables import number, percent, signed
from hilserver.tick.bridge.strategies import BRIDGING
from hilserver.units import shown_unit

NOT_USABLE = 0.1
"""RMS deviation, as a fraction of the range of a quantity, above which even the best strategy is useless."""


def sentences(result: Fidelity) -> list[str]:
    """The results in words, most important first."""
    found = [*_best(result), *_sweep_sentences(result), *_other_port(result)]
    if result.ports_without_valve:
        ports = ", ".join(result.ports_without_valve)
        found.append(
            f"Port {ports} has no separate valve: its pressure comes from the other edge of the real valve and from "
            "the real supply, not from the virtual circuit. No bridge can compensate for that."
        )
    if result.paced is not None:
        found.append(f"Paced: {result.paced}.")
    return found + [f"Not tried: {reason}." for reason in result.left_out.values()]


def _best(result: Fidelity) -> Iterator[str]:
    for quantity in result.quantities:
        errors = result.cycle_errors(quantity.name)
        if quantity.unit == "Pa" or quantity.other_edge or len(errors) < 2:
            continue
        yield f"{quantity.name}: {_closer(errors, (NO_BRIDGE, BRIDGING[0]))}."
    for valve in result.valves:
        if len(errors := result.valve_tracking(valve)) > 1:
            yield f"valve {valve} alone, against the virtual flow: {_closer(errors, (BRIDGING[0],))}."


def _closer(errors: dict[str, Deviation], over: tuple[str, ...]) -> str:
    """The best variant, its deviation, and how many times more accurate it is than others."""
    best = min(errors, key=lambda name: errors[name].rms)
    times = [
        f"{_times(errors[name].rms / errors[best].rms)} times more accurate than {name}"
        for name in over
        if name in errors and name != best and errors[best].rms > 0.0
    ]
    off = errors[best].nrmse
    unusable = ": not usable" if off > NOT_USABLE else ""
    return ", ".join([f"{best} is best, with a deviation of {percent(off)} of the range{unusable}", *times])


def _times(ratio: float) -> str:
    """A ratio with its significant digits: 1.23, 12.3, 1200."""
    return f"{ratio:.2f}" if ratio < 10.0 else f"{ratio:.1f}" if ratio < 100.0 else f"{float(f'{ratio:.2g}'):.0f}"


def _sweep_sentences(result: Fidelity) -> Iterator[str]:
    """Largest errors over frequency with the highest strategy that was tried, and where a valve was saturated."""
    unachievable = result.unachievable()
    for quantity in result.followed():
        found = result.sweep_responses(quantity.name)
        if quantity.unit != "m^3/s" or not found:
            continue
        name = highest_strategy(found)
        free = tuple(r for r in found[name] if r.frequency not in unachievable)
        amplitude, phase = largest_errors(free)
        if isfinite(amplitude):
            lowest, highest = min(r.frequency for r in free), max(r.frequency for r in free)
            yield (
                f"{quantity.name} with {name}: amplitude within {number(100 * abs(amplitude))} %, phase within "
                f"{number(abs(phase))}° at {lowest:g} … {highest:g} Hz."
            )
        for r in (r for r in found[name] if r.frequency in unachievable and isfinite(r.ratio)):
            yield (
                f"{quantity.name} at {r.frequency:g} Hz: a valve was saturated in {unachievable[r.frequency]:.0%} of "
                f"the ticks, amplitude {signed(100 * (r.ratio - 1.0), ' %')}, phase {signed(r.phase, '°')}."
            )


def _other_port(result: Fidelity) -> Iterator[str]:
    for quantity in result.quantities:
        if not quantity.other_edge or quantity.unit != "m^3/s":
            continue
        port, valve = quantity.name.partition(" ")[2], quantity.other_edge
        tracking = result.tracking(quantity.name)
        if not tracking:
            continue
        name = highest_strategy(tracking)
        error, (unit, factor) = tracking[name], shown_unit("m^3/s")
        yield (
            f"Port {port} is supplied by the other edges of valve {valve}, whose spool controls the flow at port "
            f"{result.valves[valve]}. With {name}, the flow at port {port} deviates from the virtual flow by "
            f"{error.rms * factor:.2g} {unit} RMS ({percent(error.nrmse)} of its range), {error.largest * factor:.2g} "
            "at most. Only a separate valve at this port can correct it."
        )
