"""The fidelity of a rig as tables, for terminal and report."""

from __future__ import annotations

from math import isfinite, nan

from hilserver.fidelity.measures import Response, largest_errors
from hilserver.fidelity.results import (
    NO_BRIDGE,
    NOISE_CORNER,
    SATURATED_SHARE,
    ComparedQuantity,
    Fidelity,
    SegmentResult,
    Variant,
)
from hilserver.report.document import Grid
from hilserver.tick.codes import Saturation
from hilserver.units import shown_unit

NOTHING = "–"
"""A cell without a value."""
SATURATED = f"a valve was saturated in more than {SATURATED_SHARE:.0%} of the ticks: the request is not achievable"
SHORT: dict[int, str] = {
    Saturation.CAPACITY: "capacity",
    Saturation.NO_DROP: "no drop",
    Saturation.RANGE: "range",
    Saturation.SLEW: "slew",
    Saturation.NEAR_END: "end stop",
    Saturation.OSCILLATION: "oscillation",
    Saturation.SPOOL_FAULT: "spool fault",
}
"""Column heads for the flags of a valve's saturation."""


def overview(result: Fidelity) -> Grid:
    """All strategies side by side."""
    cycle, frequency = cycle_grid(result), frequency_grid(result)
    rows = [(*left, *right[1:]) for left, right in zip(cycle.rows, frequency.rows, strict=True)]
    return Grid((*cycle.head, *frequency.head[1:]), tuple(rows), f"{cycle.caption} {frequency.caption}")


def cycle_grid(result: Fidelity) -> Grid:
    """Deviation of every quantity over the work cycle, by strategy."""
    shown = [q for q in result.quantities if result.cycle_errors(q.name)]
    tracked = [valve for valve in result.valves if result.valve_tracking(valve)]
    rows = []
    for variant in result.variants:
        errors = [result.cycle_errors(q.name).get(variant.name) for q in shown]
        errors += [result.valve_tracking(valve).get(variant.name) for valve in tracked]
        rows.append((variant.name, *(percent(error.nrmse) if error else NOTHING for error in errors)))
    rows += _trip_rows(result, len(shown) + len(tracked))
    head = ("strategy", *(q.name.replace(" ", "\n") for q in shown), *(f"valve\n{valve}" for valve in tracked))
    against = "the reference simulation" if result.reference else "the virtual flow of the same run"
    caption = f"NRMSE over the work cycle, against {against}"
    own = "; valve: its flow against the virtual flow of the same run" if tracked else ""
    return Grid(head, tuple(rows), f"{caption}{own}." if len(head) > 1 else "")


def frequency_grid(result: Fidelity, only: str = "") -> Grid:
    """Largest errors over frequency, noise and saturation, by strategy; ``only``: quantities of this SI unit."""
    swept = [q for q in result.followed() if result.sweep_responses(q.name) and only in ("", q.unit)]
    rows = []
    for variant in result.variants:
        cells = []
        for quantity in swept:
            cells += _error_cells(result, quantity, variant)
        cells += _noise_cells(result, variant, bool(swept))
        rows.append(
            (variant.name, *cells, _share(variant.segments[0].saturated) if variant.name != NO_BRIDGE else NOTHING)
        )
    head = ["strategy"]
    rows += _trip_rows(result, 2 * len(swept) + (3 if swept else 2))
    for quantity in swept:
        head += [f"{quantity.name}\namplitude", "\nphase"]
    head += ["noise\n%", "at rest\n%", "satu-\nrated"] if swept else ["noise\n%", "satu-\nrated"]
    text = f"Noise: RMS of the command above {NOISE_CORNER / result.dt:g} Hz, % of full command."
    if swept:
        text = (
            "Amplitude and phase: largest error over all sines, except those at which the highest strategy saturates a "
            f"valve (in more than {SATURATED_SHARE:.0%} of the ticks). {text}"
        )
    return Grid(tuple(head), tuple(rows), text)


def _trip_rows(result: Fidelity, cells: int) -> list[tuple[str, ...]]:
    """A row for each strategy with which the rig did not complete the run."""
    return [(f"{name}: {text}", *[NOTHING] * cells) for name, text in result.tripped.items()]


def largest_grid(result: Fidelity) -> Grid:
    """Largest deviations over the work cycle, by strategy."""
    shown = [q for q in result.quantities if result.cycle_errors(q.name)]
    rows = []
    for variant in result.variants:
        errors = [(q, result.cycle_errors(q.name).get(variant.name)) for q in shown]
        cells = [f"{e.largest * shown_unit(q.unit)[1]:.3g}" if e else NOTHING for q, e in errors]
        rows.append((variant.name, *cells))
    return Grid(("largest deviation", *(f"{q.name}\n{shown_unit(q.unit)[0]}" for q in shown)), tuple(rows))


def _error_cells(result: Fidelity, quantity: ComparedQuantity, variant: Variant) -> list[str]:
    unachievable = result.unachievable()
    found = result.sweep_responses(quantity.name).get(variant.name, ())
    amplitude, phase = largest_errors(tuple(r for r in found if r.frequency not in unachievable))
    return [signed(100 * amplitude, "%"), signed(phase, "°")] if isfinite(amplitude) else [NOTHING, NOTHING]


def _noise_cells(result: Fidelity, variant: Variant, rest: bool) -> list[str]:
    """Noise of the noisiest valve's command over the work cycle (without one: the sweep), and at rest."""
    first, sweep = variant.segments[0], variant.sweep
    found = [max(first.noise(valve, result.dt) for valve in first.command)]
    if rest:
        found.append(max(sweep.noise_at_rest(v, result.dt) for v in sweep.command) if sweep else nan)
    return [number(100 * value) if isfinite(value) else NOTHING for value in found]


def _share(share: float) -> str:
    return f"{100 * share:.1f}%"


def sweep_grid(result: Fidelity, quantity: str) -> Grid:
    """Amplitude ratio and phase of a quantity over frequency, by strategy."""
    responses = result.sweep_responses(quantity)
    frequencies = sorted({r.frequency for found in responses.values() for r in found})
    rows = []
    for variant in result.variants:
        by_frequency = {r.frequency: r for r in responses.get(variant.name, ())}
        cells = [_response_cell(by_frequency.get(f), variant.sweep) for f in frequencies]
        rows.append((variant.name, *cells))
    return Grid((quantity, *(f"{f:g} Hz" for f in frequencies)), tuple(rows), f"* {SATURATED}")


def _response_cell(r: Response | None, sweep: SegmentResult | None) -> str:
    if r is None or sweep is None or not isfinite(r.ratio):
        return NOTHING
    return f"{r.ratio:.3f} {r.phase:+.1f}°{'*' if sweep.saturated_at(r.frequency) > SATURATED_SHARE else ''}"


def command_grid(result: Fidelity) -> Grid:
    """Noise of each valve's command, and saturation over work cycle and sweep, by strategy."""
    shares = {(v.name, valve): v.saturations(valve) for v in result.variants for valve in result.valves}
    flags = sorted({flag for found in shares.values() for flag in found})
    rows = []
    for variant in result.variants:
        for valve in result.valves:
            noise = [variant.segments[0].noise(valve, result.dt)]
            noise.append(variant.sweep.noise_at_rest(valve, result.dt) if variant.sweep else nan)
            cells = [percent(value) for value in noise]
            known = variant.name != NO_BRIDGE
            cells += [_share(shares[variant.name, valve].get(flag, 0.0)) if known else NOTHING for flag in flags]
            rows.append((variant.name, valve, *cells))
    head = ("strategy", "valve", "noise", "noise at rest", *(SHORT[flag] for flag in flags))
    texts = [f"{SHORT[flag]}: {Saturation(flag).text}" for flag in flags]
    return Grid(head, tuple(rows), "; ".join(["Saturation: share of the ticks of work cycle and sweep", *texts]) + ".")


def known_grid(result: Fidelity) -> Grid | None:
    """Uncertainty of measured and estimated quantities, and of amplitude and phase; None without such quantities."""
    rows = []
    for quantity in result.quantities:
        if quantity.known == "true" or not result.variants:
            continue
        last = result.variants[-1].segments[-1]
        deviation = last.uncertainty.get(quantity.name, 0.0) + last.sensor_noise.get(quantity.name, 0.0)
        unit, factor = shown_unit(quantity.unit)
        found = [
            r for r in result.sweep_responses(quantity.name).get(result.variants[-1].name, ()) if isfinite(r.ratio)
        ]
        ratio = max((r.ratio_deviation for r in found), default=nan)
        phase = max((r.phase_deviation for r in found), default=nan)
        rows.append(
            (
                quantity.name,
                quantity.known,
                f"{deviation * factor:.2g} {unit}" if deviation > 0.0 else "unknown",
                f"±{100 * ratio:.2g} %" if isfinite(ratio) and deviation > 0.0 else NOTHING,
                f"±{phase:.2g}°" if isfinite(phase) and deviation > 0.0 else NOTHING,
            )
        )
    if not rows:
        return None
    caption = (
        "Amplitude and phase: standard deviations for the sine with the smallest amplitude. The noise of a sensor is "
        "independent from sample to sample; the error of an estimate may lie entirely at that frequency. Errors in the "
        "rig file (scale and delay of a sensor, dimensions of a cylinder, bulk modulus) add to these. Where the "
        "strategy feeds the estimate back, its error is not visible in the flow."
    )
    return Grid(("quantity", "source", "standard deviation", "amplitude", "phase"), tuple(rows), caption)


def estimate_grid(result: Fidelity) -> Grid | None:
    """Error of the flows as the bridge estimates them; None if the actual flows are not known otherwise."""
    unit, factor = shown_unit("m^3/s")
    rows = []
    for quantity in result.quantities:
        if quantity.known == "estimated":
            continue
        for variant in result.variants:
            first = variant.segments[0]
            if (error := first.estimation.get(quantity.name)) is None:
                continue
            cells = (
                f"{error.rms * factor:.2g}",
                f"{error.largest * factor:.2g}",
                f"{first.stated_deviation[quantity.name] * factor:.2g}",
            )
            rows.append((variant.name, quantity.name, *cells))
    if not rows:
        return None
    head = ("strategy", "flow", f"RMS error, {unit}", f"largest, {unit}", f"stated standard deviation, {unit}")
    return Grid(
        head, tuple(rows), "Over the work cycle, against the true flow of a simulated machine or the measured flow."
    )


def percent(share: float) -> str:
    """A share in per cent."""
    return f"{number(100 * share)}%" if isfinite(share) else NOTHING


def signed(value: float, unit: str) -> str:
    """The same with its sign and a unit."""
    return f"{'-' if value < 0.0 else '+'}{number(abs(value))}{unit}"


def number(value: float) -> str:
    """Two significant digits without an exponent: 0.012, 3.4, 160."""
    return (
        f"{value:.2g}" if 1e-4 < value < 99.5 or value == 0.0 else f"{float(f'{value:.2g}'):f}".rstrip("0").rstrip(".")
    )
