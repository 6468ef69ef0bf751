"""The fidelity of a rig for the reader: tables for terminal and report, sentences, plots, figures as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from rich.table import Table

from hilserver.fidelity.measures import Deviation, Response, worst
from hilserver.fidelity.results import NO_BRIDGE, NOISE_CORNER, VARIANTS, Course, Fidelity, Quantity, Variant
from hilserver.numerics.arrays import Floats
from hilserver.report.circuit_blocks import components, drawing
from hilserver.report.document import Block, Document, Grid, Heading, Listing, Picture
from hilserver.report.figures import write_json
from hilserver.report.plots import REFERENCE, Lines, Panel, new_figure, panels_figure
from hilserver.tick.bridge.ladder import STRATEGY_NAMES
from hilserver.tick.codes import Saturation
from hilserver.units import shown_unit

NOTHING = "–"
MUCH = 0.05
"""Share of a sine's ticks with a saturated valve beyond which its figures say what the valve can't do."""
BAND = 5.0
"""Per cent and degrees that are shaded in the plot over frequency."""


# --- tables -----------------------------------------------------------------------------------------------------------


def overview(result: Fidelity) -> Grid:
    """All strategies side by side."""
    cycle, frequency = cycle_grid(result), frequency_grid(result)
    rows = [(*left, *right[1:]) for left, right in zip(cycle.rows, frequency.rows, strict=True)]
    return Grid((*cycle.head, *frequency.head[1:]), tuple(rows), f"{cycle.caption} {frequency.caption}")


def cycle_grid(result: Fidelity) -> Grid:
    """Deviation of every quantity over the work cycle, by strategy."""
    shown = [q for q in result.quantities if result.cycle_errors(q.name)]
    asked = [valve for valve in result.valves if _asked(result, valve)]
    rows = []
    for variant in result.variants:
        errors = [result.cycle_errors(q.name).get(variant.name) for q in shown]
        errors += [_asked(result, valve).get(variant.name) for valve in asked]
        rows.append((variant.name, *(_percent(error.nrmse) if error else NOTHING for error in errors)))
    head = ("strategy", *(q.name.replace(" ", "\n") for q in shown), *(f"valve\n{valve}" for valve in asked))
    against = "the direct simulation" if result.truth else "the virtual flow of the same run"
    caption = f"NRMSE over the work cycle, against {against}"
    own = "; valve: its flow against what the virtual circuit asked of it in the same run" if asked else ""
    return Grid(head, tuple(rows), f"{caption}{own}." if len(head) > 1 else "")


def frequency_grid(result: Fidelity, only: str = "") -> Grid:
    """Largest errors over frequency, noise and saturation, by strategy; ``only``: quantities of this SI unit."""
    swept = [q for q in _followed(result) if result.sweep_responses(q.name) and only in ("", q.unit)]
    rows = []
    for variant in result.variants:
        cells = []
        for quantity in swept:
            cells += _worst_cells(result, quantity, variant)
        cells += _noise_cells(result, variant, bool(swept))
        rows.append(
            (variant.name, *cells, _share(variant.courses[0].saturated) if variant.name != NO_BRIDGE else NOTHING)
        )
    head = ["strategy"]
    for quantity in swept:
        head += [f"{quantity.name}\namplitude", "\nphase"]
    head += ["noise\n%", "at rest\n%", "satu-\nrated"] if swept else ["noise\n%", "satu-\nrated"]
    text = f"Noise: RMS of the command above {NOISE_CORNER / result.dt:g} Hz, % of full command."
    if swept:
        text = (
            "Amplitude and phase: the largest error over all sines but those at which the highest strategy saturates a "
            f"valve (in more than {MUCH:.0%} of the ticks). {text}"
        )
    return Grid(tuple(head), tuple(rows), text)


def largest_grid(result: Fidelity) -> Grid:
    """Largest deviations over the work cycle, by strategy."""
    shown = [q for q in result.quantities if result.cycle_errors(q.name)]
    rows = []
    for variant in result.variants:
        errors = [(q, result.cycle_errors(q.name).get(variant.name)) for q in shown]
        cells = [f"{e.largest * shown_unit(q.unit)[1]:.3g}" if e else NOTHING for q, e in errors]
        rows.append((variant.name, *cells))
    return Grid(("largest deviation", *(f"{q.name}\n{shown_unit(q.unit)[0]}" for q in shown)), tuple(rows))


def _worst_cells(result: Fidelity, quantity: Quantity, variant: Variant) -> list[str]:
    in_vain = asked_in_vain(result)
    found = result.sweep_responses(quantity.name).get(variant.name, ())
    amplitude, phase = worst(tuple(r for r in found if r.frequency not in in_vain))
    return [_signed(100 * amplitude, "%"), _signed(phase, "°")] if isfinite(amplitude) else [NOTHING, NOTHING]


def asked_in_vain(result: Fidelity) -> dict[float, float]:
    """Frequencies at which the highest rung that was tried saturates a valve, with the share of the ticks.

    The same for all strategies, so that they are compared where what was asked for can be had.
    """
    swept = {v.name: v.sweep for v in result.variants if v.sweep is not None}
    if not swept:
        return {}
    highest = swept[_highest(swept)]
    shares = {sine.frequency: highest.saturated_at(sine.frequency) for sine in highest.sines}
    return {frequency: share for frequency, share in shares.items() if share > MUCH}


def _noise_cells(result: Fidelity, variant: Variant, rest: bool) -> list[str]:
    """The noisiest valve's, over the work cycle (without one: the sweep) and at rest."""
    first, sweep = variant.courses[0], variant.sweep
    found = [max(first.noise(valve, result.dt) for valve in first.command)]
    if rest:
        found.append(max(sweep.noise_at_rest(v, result.dt) for v in sweep.command) if sweep else nan)
    return [_number(100 * value) if isfinite(value) else NOTHING for value in found]


def _share(share: float) -> str:
    return f"{100 * share:.1f}%"


def _followed(result: Fidelity) -> list[Quantity]:
    """What the valves are to follow: positions, and flows into their own ports."""
    return [q for q in result.quantities if q.unit != "Pa" and not q.other_edge]


def _asked(result: Fidelity, valve: str) -> dict[str, Deviation]:
    """Deviation of a valve's flow from what was asked of it, by variant; empty where all is held against that."""
    if not result.truth:
        return {}
    name = f"flow {result.valves[valve]}"
    return {v.name: v.cycle.tracking[name] for v in result.variants if v.cycle and name in v.cycle.tracking}


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


SATURATED = f"a valve was saturated in more than {MUCH:.0%} of the ticks: what was asked for can't be had"


def _response_cell(r: Response | None, course: Course | None) -> str:
    if r is None or course is None or not isfinite(r.ratio):
        return NOTHING
    return f"{r.ratio:.3f} {r.phase:+.1f}°{'*' if course.saturated_at(r.frequency) > MUCH else ''}"


def command_grid(result: Fidelity) -> Grid:
    """Noise of each valve's command, and saturation over work cycle and sweep, by strategy."""
    shares = {(v.name, valve): v.saturations(valve) for v in result.variants for valve in result.valves}
    flags = sorted({flag for found in shares.values() for flag in found})
    rows = []
    for variant in result.variants:
        for valve in result.valves:
            noise = [variant.courses[0].noise(valve, result.dt)]
            noise.append(variant.sweep.noise_at_rest(valve, result.dt) if variant.sweep else nan)
            cells = [_percent(value) for value in noise]
            known = variant.name != NO_BRIDGE
            cells += [_share(shares[variant.name, valve].get(flag, 0.0)) if known else NOTHING for flag in flags]
            rows.append((variant.name, valve, *cells))
    head = ("strategy", "valve", "noise", "noise at rest", *(SHORT[flag] for flag in flags))
    texts = [f"{SHORT[flag]}: {Saturation(flag).text}" for flag in flags]
    return Grid(head, tuple(rows), "; ".join(["Saturation: share of the ticks of work cycle and sweep", *texts]) + ".")


SHORT: dict[int, str] = {
    Saturation.CAPACITY: "too small",
    Saturation.NO_DROP: "no drop",
    Saturation.RANGE: "range",
    Saturation.SLEW: "slew",
    Saturation.NEAR_END: "end of stroke",
    Saturation.OSCILLATION: "oscillation",
    Saturation.SPOOL_FAULT: "spool fault",
}
"""Heads of columns for the flags of a valve's saturation."""


def known_grid(result: Fidelity) -> Grid | None:
    """How well the real quantities are known where they are measured or estimated, and what follows."""
    rows = []
    for quantity in result.quantities:
        if quantity.known == "true" or not result.variants:
            continue
        course = result.variants[-1].courses[-1]
        doubt = course.doubt.get(quantity.name, 0.0) + course.scatter.get(quantity.name, 0.0)
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
                f"{doubt * factor:.2g} {unit}" if doubt > 0.0 else "not known",
                f"±{100 * ratio:.2g} %" if isfinite(ratio) and doubt > 0.0 else NOTHING,
                f"±{phase:.2g}°" if isfinite(phase) and doubt > 0.0 else NOTHING,
            )
        )
    if not rows:
        return None
    caption = (
        "Amplitude and phase: standard deviations for the sine that swings least. A sensor's noise differs from sample "
        "to sample, an estimate's error may all be at that frequency. What the rig file says wrongly (scale and delay "
        "of a sensor, dimensions of a cylinder, bulk modulus) comes on top; and where the strategy feeds the estimate "
        "back, its error can't be seen in the flow."
    )
    return Grid(("quantity", "known", "standard deviation", "amplitude", "phase"), tuple(rows), caption)


def estimate_grid(result: Fidelity) -> Grid | None:
    """How well the bridge's own estimate of the flows fits the real ones."""
    unit, factor = shown_unit("m^3/s")
    rows = []
    for quantity in result.quantities:
        if quantity.known == "estimated":
            continue
        for variant in result.variants:
            course = variant.courses[0]
            if (error := course.estimation.get(quantity.name)) is None:
                continue
            cells = (
                f"{error.rms * factor:.2g}",
                f"{error.largest * factor:.2g}",
                f"{course.claim[quantity.name] * factor:.2g}",
            )
            rows.append((variant.name, quantity.name, *cells))
    if not rows:
        return None
    head = ("strategy", "flow", f"RMS error, {unit}", f"largest, {unit}", f"stated standard deviation, {unit}")
    return Grid(
        head, tuple(rows), "Over the work cycle. Real: the true flow of a simulated machine, or the measured one."
    )


# --- sentences --------------------------------------------------------------------------------------------------------


def sentences(result: Fidelity) -> list[str]:
    """By how much the best bridge beats none and the lowest rung; what can't be matched; what was left out."""
    found = [*_best(result), *_sweep_sentences(result), *_other_port(result)]
    if result.ports_without_valve:
        ports = ", ".join(result.ports_without_valve)
        found.append(
            f"Port {ports} has no valve of its own: its pressure comes from the other edge of the real valve and from "
            "the real supply, not from the virtual circuit: no bridge can mend that."
        )
    return found + [f"Not tried: {reason}." for reason in result.left_out.values()]


def _best(result: Fidelity) -> Iterator[str]:
    for quantity in result.quantities:
        errors = result.cycle_errors(quantity.name)
        if quantity.unit == "Pa" or quantity.other_edge or len(errors) < 2:
            continue
        yield f"{quantity.name}: {_closer(errors, (NO_BRIDGE, STRATEGY_NAMES[1]))}."
    for valve in result.valves:
        if len(errors := _asked(result, valve)) > 1:
            yield f"valve {valve} alone, against the flow asked of it: {_closer(errors, (STRATEGY_NAMES[1],))}."


def _closer(errors: dict[str, Deviation], over: tuple[str, ...]) -> str:
    """Which variant is best, and how many times closer it is than others."""
    best = min(errors, key=lambda name: errors[name].rms)
    times = [
        f"{_times(errors[name].rms / errors[best].rms)} times closer than {name}"
        for name in over
        if name in errors and name != best and errors[best].rms > 0.0
    ]
    return ", ".join([f"{best} is best", *times])


def _times(ratio: float) -> str:
    """A ratio with as many digits as mean something: 1.23, 12.3, 1200."""
    return f"{ratio:.2f}" if ratio < 10.0 else f"{ratio:.1f}" if ratio < 100.0 else f"{float(f'{ratio:.2g}'):.0f}"


def _sweep_sentences(result: Fidelity) -> Iterator[str]:
    """Of the highest rung that was tried: largest errors over frequency, and where a valve was saturated."""
    in_vain = asked_in_vain(result)
    for quantity in _followed(result):
        found = result.sweep_responses(quantity.name)
        if quantity.unit != "m^3/s" or not found:
            continue
        name = _highest(found)
        free = tuple(r for r in found[name] if r.frequency not in in_vain)
        amplitude, phase = worst(free)
        if isfinite(amplitude):
            lowest, highest = min(r.frequency for r in free), max(r.frequency for r in free)
            yield (
                f"{quantity.name} with {name}: amplitude within {_number(100 * abs(amplitude))} %, phase within "
                f"{_number(abs(phase))}° at {lowest:g} … {highest:g} Hz."
            )
        for r in (r for r in found[name] if r.frequency in in_vain and isfinite(r.ratio)):
            yield (
                f"{quantity.name} at {r.frequency:g} Hz: a valve was saturated in {in_vain[r.frequency]:.0%} of the "
                f"ticks, amplitude {_signed(100 * (r.ratio - 1.0), ' %')}, phase {_signed(r.phase, '°')}."
            )


def _highest(found: Mapping[str, object]) -> str:
    """The highest rung of the ladder among some variants."""
    rungs = [name for name in STRATEGY_NAMES if name in found and name != "flow_servo"]
    return rungs[-1] if rungs else list(found)[-1]


def _other_port(result: Fidelity) -> Iterator[str]:
    for quantity in result.quantities:
        if not quantity.other_edge or quantity.unit != "m^3/s":
            continue
        port, valve = quantity.name.partition(" ")[2], quantity.other_edge
        asked = {
            v.name: v.cycle.tracking[quantity.name]
            for v in result.variants
            if v.cycle and quantity.name in v.cycle.tracking
        }
        if not asked:
            continue
        name = _highest(asked)
        error, (unit, factor) = asked[name], shown_unit("m^3/s")
        yield (
            f"Port {port} is served by the other edges of valve {valve}, whose spool follows port "
            f"{result.valves[valve]}: with {name} its flow is {error.rms * factor:.2g} {unit} (RMS, at most "
            f"{error.largest * factor:.2g}) off what the virtual circuit asks for there, {_percent(error.nrmse)} of "
            "its range. Only a valve of its own can mend that."
        )


# --- terminal, plots, files -------------------------------------------------------------------------------------------


def tables(result: Fidelity) -> list[Table]:
    """All strategies side by side for the terminal: over the work cycle, over frequency."""
    title = f"{result.rig}: how far it is from its virtual circuit"
    return [_table(cycle_grid(result), title), _table(frequency_grid(result, "m^3/s"), "")]


def _table(grid: Grid, title: str) -> Table:
    """A table for the terminal."""
    made = Table(title=title, caption=grid.caption)
    for number, head in enumerate(grid.head):
        made.add_column(head, justify="right" if number else "left", no_wrap=not number)
    for row in grid.rows:
        made.add_row(*row)
    return made


def over_frequency(result: Fidelity) -> Figure | None:
    """Amplitude and phase error of what the valves follow, over frequency."""
    quantities = [q for q in _followed(result) if result.sweep_responses(q.name)]
    if not quantities:
        return None
    against = "direct simulation" if result.truth else "virtual flow"
    figure = new_figure(2 * len(quantities), f"{result.rig}: sines on {result.swept}, error against the {against}")
    axes = figure.subplots(2 * len(quantities), 1, sharex=True, squeeze=False)[:, 0]
    in_vain = asked_in_vain(result)
    for quantity, (upper, lower) in zip(quantities, zip(axes[::2], axes[1::2], strict=True), strict=True):
        found = result.sweep_responses(quantity.name)
        for axis, label, values in (
            (upper, "amplitude, %", {n: [100 * (r.ratio - 1) for r in rs] for n, rs in found.items()}),
            (lower, "phase, °", {n: [r.phase for r in rs] for n, rs in found.items()}),
        ):
            axis.axhspan(-BAND, BAND, color="0.93", zorder=0)
            for name, line in values.items():
                axis.semilogx(
                    [r.frequency for r in found[name]],
                    line,
                    "o-",
                    ms=3,
                    lw=0.9,
                    label=name,
                    color=_colour(result, name),
                )
            seen = [
                abs(value)
                for name, line in values.items()
                for r, value in zip(found[name], line, strict=True)
                if name != NO_BRIDGE and isfinite(value) and r.frequency not in in_vain
            ]
            limit = max(1.15 * max(seen, default=BAND), 2 * BAND)
            axis.set_ylim(-limit, limit)
            axis.set_ylabel(f"{quantity.name}\n{label}")
            axis.grid(alpha=0.3, which="both")
        upper.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7)
    ticks = sorted({r.frequency for rs in found.values() for r in rs})
    axes[-1].set_xticks(ticks, [f"{f:g}{' *' if f in in_vain else ''}" for f in ticks])
    axes[-1].minorticks_off()
    axes[-1].set_xlabel("frequency, Hz" + ("   (*: a valve is saturated)" if in_vain else ""))
    return figure


def _colour(result: Fidelity, name: str) -> object:
    """Each strategy has its colour in all plots."""
    return colormaps["tab20"](2 * [variant.name for variant in result.variants].index(name) % 20)


def over_time(result: Fidelity, kind: str = "cycle") -> Figure | None:
    """Every quantity of truth and variants over the work cycle, below it the bridges' deviation, and the commands."""
    courses = {v.name: course for v in result.variants if (course := getattr(v, kind)) is not None}
    if not courses:
        return None
    time = next(iter(courses.values())).time
    panels = list(_panels(result, courses, time))
    against = "virtual circuit joined directly (truth)" if result.truth else "virtual circuit"
    colours = {name: _colour(result, name) for name in courses}
    return panels_figure(time, panels, f"{result.rig}: {against} and bridged rig", colours)


def _panels(result: Fidelity, courses: dict[str, Course], time: Floats) -> Iterator[Panel]:
    for quantity in result.quantities:
        name = quantity.name
        references = {n: c.truth if result.truth else c.asked for n, c in courses.items()}
        lines: dict[str, Floats] = {n: _on(time, c.time, c.real[name]) for n, c in courses.items() if name in c.real}
        errors: Lines = {
            n: _on(time, c.time, c.real[name] - references[n][name])
            for n, c in courses.items()
            if n != NO_BRIDGE and name in c.real and name in references[n]
        }
        known = [_on(time, courses[n].time, r[name]) for n, r in references.items() if name in r]
        if known:
            lines[REFERENCE if result.truth else "virtual"] = known[0]
        yield name, quantity.unit, lines
        if errors:
            yield f"deviation of {name}", quantity.unit, errors
    for valve in result.valves:
        yield f"command of {valve}", "", {n: _on(time, c.time, c.command[valve]) for n, c in courses.items()}


def _on(time: Floats, times: Floats, values: Floats) -> Floats:
    found: Floats = values if len(times) == len(time) else np.interp(time, times, values)
    return found


def write_simulation(result: Fidelity, folder: Path) -> list[Path]:
    """A work cycle under every strategy as a page (HTML and Markdown) and as figures (JSON); returns the files."""
    stem = f"{result.rig}-simulate"
    figure = over_time(result)
    assert figure is not None
    blocks: list[Block] = [
        Listing(tuple(sentences(result) + list(result.notes))),
        overview(result),
        Picture("course", figure, "Quantities, deviations (without those of no compensation) and commands over time"),
        *_circuit(result),
    ]
    written = Document(f"{result.rig}: the work cycle under every strategy", blocks).write(folder, stem)
    return [*written, write_json(figures(result), folder / f"{stem}.json")]


def _circuit(result: Fidelity) -> Iterator[Block]:
    if result.circuit:
        yield Heading("The virtual circuit")
        yield from drawing(result.circuit)
        yield components(result.circuit)


def write_report(result: Fidelity, folder: Path) -> list[Path]:
    """The report as HTML (self-contained) and Markdown with its plots, and the figures as JSON; returns the files."""
    stem = f"{result.rig}-fidelity"
    written = Document(f"How true is {result.rig} to its virtual circuit?", tuple(_blocks(result))).write(folder, stem)
    return [*written, write_json(figures(result), folder / f"{stem}.json")]


def _blocks(result: Fidelity) -> Iterator[Block]:
    yield f"Held against: {result.truth or NO_TRUTH}."
    yield Listing(tuple(sentences(result) + list(result.notes)))
    yield Heading("All strategies side by side")
    yield overview(result)
    yield Listing(tuple(f"{v.name}: {VARIANTS[v.name]}" for v in result.variants if v.name in VARIANTS))
    if (figure := over_frequency(result)) is not None:
        yield Heading(f"Over frequency: sines on {result.swept}")
        yield Picture(
            "frequency", figure, f"Amplitude and phase error over frequency; shaded: ±{BAND:g} % and ±{BAND:g}°"
        )
        for quantity in result.quantities:
            if quantity.unit != "Pa" and result.sweep_responses(quantity.name):
                yield sweep_grid(result, quantity.name)
        yield (
            "Amplitude ratio and phase at the sine's frequency, over whole periods after it has settled; beside it "
            "harmonics and a drift are fitted. A negative phase is late."
        )
    if (figure := over_time(result)) is not None:
        yield Heading("Over the work cycle")
        yield largest_grid(result)
        yield Picture(
            "cycle", figure, "Quantities, deviations (without those of no compensation) and commands over time"
        )
    yield Heading("The command")
    yield command_grid(result)
    for title, grid in (
        ("How well the real quantities are known", known_grid(result)),
        ("The bridge's estimate of the flow", estimate_grid(result)),
    ):
        if grid is not None:
            yield Heading(title)
            yield grid
    yield from _circuit(result)
    yield Heading("What the figures mean")
    yield Listing(
        (
            "NRMSE: root mean square of the deviation, by the range of what it is held against.",
            "Against the direct simulation a deviation adds up: a flow that was missing is missing in the position "
            "from then on. Against the flow asked for in the same run the bridge is seen alone.",
            f"Noise: root mean square of the command above {NOISE_CORNER / result.dt:g} Hz (Butterworth, fourth order, "
            "both ways), of full command. Over a work cycle with abrupt inputs it contains what they ask for; at rest "
            "it is noise alone.",
        )
    )


NO_TRUTH = (
    "the flow that the virtual circuit asked for in the same run. There is no model of the machine, so nothing says "
    "how the machine would have moved with the virtual circuit installed; give its cylinders in the rig file, or its "
    "circuit file (--machine)"
)


def figures(result: Fidelity) -> dict[str, Any]:
    """The same as data."""
    return {
        "rig": result.rig,
        "held_against": result.truth or "virtual flow",
        "quantities": {q.name: {"unit": q.unit, "known": q.known} for q in result.quantities},
        "left_out": dict(result.left_out),
        "variants": {v.name: _variant_figures(result, v) for v in result.variants},
        "best_is_closer_by": {
            q.name: {name: result.gain(q.name, name) for name in errors}
            for q in result.quantities
            if (errors := result.cycle_errors(q.name))
        },
    }


def _variant_figures(result: Fidelity, variant: Variant) -> dict[str, Any]:
    found: dict[str, Any] = {"meaning": VARIANTS.get(variant.name, variant.name)}
    for kind, course in (("cycle", variant.cycle), ("sweep", variant.sweep)):
        if course is None:
            continue
        found[kind] = {
            "saturated": course.saturated,
            "deviations": {name: _deviation_figures(d) for name, d in course.deviations.items()},
            "against_flow_asked": {name: _deviation_figures(d) for name, d in course.tracking.items()},
            "flow_estimate": {name: _deviation_figures(d) for name, d in course.estimation.items()},
            "noise": {valve: course.noise(valve, result.dt) for valve in course.command},
            "noise_at_rest": {valve: course.noise_at_rest(valve, result.dt) for valve in course.command},
            "responses": {name: [vars(r) for r in rs] for name, rs in course.responses.items()},
            "responses_to_flow_asked": {name: [vars(r) for r in rs] for name, rs in course.tracking_responses.items()},
        }
    return found


def _deviation_figures(d: Deviation) -> dict[str, float]:
    return {"nrmse": d.nrmse, "rms": d.rms, "largest": d.largest, "range": d.range}


def _percent(share: float) -> str:
    return f"{_number(100 * share)}%" if isfinite(share) else NOTHING


def _signed(value: float, unit: str) -> str:
    return f"{'-' if value < 0.0 else '+'}{_number(abs(value))}{unit}"


def _number(value: float) -> str:
    """Two digits that mean something, without an exponent: 0.012, 3.4, 160."""
    return (
        f"{value:.2g}" if 1e-4 < value < 99.5 or value == 0.0 else f"{float(f'{value:.2g}'):f}".rstrip("0").rstrip(".")
    )
