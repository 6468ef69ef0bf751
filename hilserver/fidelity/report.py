"""The report on the fidelity of a rig (HTML, Markdown), and its results as data (JSON)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hilserver.fidelity.measures import Deviation
from hilserver.fidelity.plots import BAND, frequency_figure, time_figure
from hilserver.fidelity.results import NOISE_CORNER, VARIANTS, Fidelity, Variant
from hilserver.fidelity.summary import sentences
from hilserver.fidelity.tables import command_grid, estimate_grid, known_grid, largest_grid, overview, sweep_grid
from hilserver.report.circuit_blocks import components, drawing
from hilserver.report.document import Block, Document, Facts, Heading, Listing, Picture
from hilserver.report.figures import write_json
from hilserver.simulation.balance import balance_figures

NO_REFERENCE = (
    "the virtual flow of the same run. There is no model of the machine, so its motion with the virtual circuit "
    "installed is unknown: give its cylinders in the rig file, or its circuit file (--machine)"
)
TIME_CAPTION = "Quantities, deviations (except those without compensation) and commands over time"


def write_simulation(result: Fidelity, folder: Path) -> list[Path]:
    """The work cycle under every strategy as a page (HTML and Markdown) and as data (JSON); returns the files."""
    stem = f"{result.rig}-simulate"
    figure = time_figure(result)
    assert figure is not None
    blocks: list[Block] = [
        Listing(tuple(sentences(result) + list(result.notes))),
        overview(result),
        *_balances(result),
        Picture("segments", figure, TIME_CAPTION),
        *_step(result),
        *_circuit(result),
    ]
    written = Document(f"{result.rig}: the work cycle under every strategy", blocks).write(folder, stem)
    return [*written, write_json(figures(result), folder / f"{stem}.json")]


def _balances(result: Fidelity) -> Iterator[Block]:
    if found := result.balances():
        yield Heading("Balances")
        yield Facts(found)


def _circuit(result: Fidelity) -> Iterator[Block]:
    if result.circuit:
        yield Heading("The virtual circuit")
        yield from drawing(result.circuit)
        yield components(result.circuit)


def _step(result: Fidelity) -> Iterator[Block]:
    if result.error is not None and result.error.deviations:
        yield Heading("Discretisation error")
        yield result.error.verdict()
        yield result.error.grid()


def write_report(result: Fidelity, folder: Path) -> list[Path]:
    """The report as HTML (self-contained) and Markdown with its plots, and the data as JSON; returns the files."""
    stem = f"{result.rig}-fidelity"
    written = Document(f"Fidelity of {result.rig} to its virtual circuit", tuple(_blocks(result))).write(folder, stem)
    return [*written, write_json(figures(result), folder / f"{stem}.json")]


def _blocks(result: Fidelity) -> Iterator[Block]:
    yield f"Reference: {result.reference or NO_REFERENCE}."
    yield Listing(tuple(sentences(result) + list(result.notes)))
    yield Heading("All strategies side by side")
    yield overview(result)
    yield Listing(tuple(f"{v.name}: {VARIANTS[v.name]}" for v in result.variants if v.name in VARIANTS))
    yield from _over_frequency(result)
    yield from _over_the_cycle(result)
    yield Heading("The command")
    yield command_grid(result)
    for title, grid in (
        ("Uncertainty of the measured quantities", known_grid(result)),
        ("The bridge's flow estimate", estimate_grid(result)),
    ):
        if grid is not None:
            yield Heading(title)
            yield grid
    yield from _step(result)
    yield from _circuit(result)
    yield from _how_to_read(result)


def _over_frequency(result: Fidelity) -> Iterator[Block]:
    if (figure := frequency_figure(result)) is not None:
        yield Heading(f"Over frequency: sines on {result.swept}")
        yield Picture(
            "frequency", figure, f"Amplitude and phase error over frequency; shaded: ±{BAND:g} % and ±{BAND:g}°"
        )
        for quantity in result.quantities:
            if quantity.unit != "Pa" and result.sweep_responses(quantity.name):
                yield sweep_grid(result, quantity.name)
        yield (
            "Amplitude ratio and phase at the sine's frequency, over whole periods after it has settled, fitted "
            "together with harmonics and a drift. A negative phase is a lag."
        )


def _over_the_cycle(result: Fidelity) -> Iterator[Block]:
    if (figure := time_figure(result)) is not None:
        yield Heading("Over the work cycle")
        yield largest_grid(result)
        yield Picture(
            "cycle", figure, "Quantities, deviations (except those without compensation) and commands over time"
        )


def _how_to_read(result: Fidelity) -> Iterator[Block]:
    yield Heading("How to read the results")
    yield Listing(
        (
            "NRMSE: root mean square of the deviation, divided by the range of the reference.",
            "Deviations from the reference simulation accumulate: after a missing flow, the position remains wrong. "
            "Deviations from the virtual flow of the same run show the error of the bridge alone.",
            f"Noise: root mean square of the command above {NOISE_CORNER / result.dt:g} Hz (Butterworth, fourth order, "
            "forwards and backwards), in % of full command. Over a work cycle with abrupt inputs it includes the "
            "response to them; at rest it is noise only.",
        )
    )


def figures(result: Fidelity) -> dict[str, Any]:
    """The results as data."""
    return {
        "rig": result.rig,
        "held_against": result.reference or "virtual flow",
        "quantities": {q.name: {"unit": q.unit, "known": q.known} for q in result.quantities},
        "left_out": dict(result.left_out),
        "error": result.error.figures() if result.error is not None else None,
        "paced": result.paced.figures() if result.paced is not None else None,
        "variants": {v.name: _variant_figures(result, v) for v in result.variants},
        "best_is_closer_by": {
            q.name: {name: result.gain(q.name, name) for name in errors}
            for q in result.quantities
            if (errors := result.cycle_errors(q.name))
        },
    }


def _variant_figures(result: Fidelity, variant: Variant) -> dict[str, Any]:
    found: dict[str, Any] = {"meaning": VARIANTS.get(variant.name, variant.name)}
    for kind, segment in (("cycle", variant.cycle), ("sweep", variant.sweep)):
        if segment is None:
            continue
        found[kind] = {
            "saturated": segment.saturated,
            "deviations": {name: _deviation_figures(d) for name, d in segment.deviations.items()},
            "against_flow_asked": {name: _deviation_figures(d) for name, d in segment.tracking.items()},
            "flow_estimate": {name: _deviation_figures(d) for name, d in segment.estimation.items()},
            "noise": {valve: segment.noise(valve, result.dt) for valve in segment.command},
            "noise_at_rest": {valve: segment.noise_at_rest(valve, result.dt) for valve in segment.command},
            "responses": {name: [vars(r) for r in rs] for name, rs in segment.responses.items()},
            "responses_to_flow_asked": {name: [vars(r) for r in rs] for name, rs in segment.tracking_responses.items()},
            "balances": {of: balance_figures(balance) for of, balance in segment.balances.items()},
        }
    return found


def _deviation_figures(d: Deviation) -> dict[str, float]:
    return {"nrmse": d.nrmse, "rms": d.rms, "largest": d.largest, "range": d.range}
