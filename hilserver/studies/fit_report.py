"""The page of a fit: values with their intervals, what can't be told apart, predicted against measured."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.fidelity.measures import Deviation
from hilserver.report.document import Block, Document, Facts, Grid, Heading, Listing, Picture
from hilserver.report.figures import write_json
from hilserver.report.plots import panels_figure
from hilserver.studies.fitting import UNEXPLAINED, FitOfCircuit
from hilserver.units import shown_value, unit_of_value

EXPLAINED = 0.01
"""Residuals that are no more than this fraction of a quantity's range are not called unexplained."""


def write_fit(result: FitOfCircuit, folder: Path) -> list[Path]:
    """The page as HTML and Markdown, and the values as JSON; returns the files. Raises HilserverError."""
    stem = f"{result.file.stem}-fit"
    page = Document(f"{result.file.name}: values from recorded data", tuple(_blocks(result))).write(folder, stem)
    return [*page, write_json(fit_figures(result), folder / f"{stem}.json")]


def _blocks(result: FitOfCircuit) -> Iterator[Block]:
    logs = ", ".join(f"{log.file.name} ({len(log.time)} samples, {log.time[-1]:.4g} s)" for log in result.logs)
    yield Facts((("Circuit", str(result.file)), ("Logs", logs), ("Software", f"hilserver {version('hilserver')}")))
    yield values_grid(result)
    yield Listing(tuple(fit_sentences(result)))
    if len(result.free) > 1:
        yield Heading("Correlations")
        yield correlations_grid(result)
    yield Heading("Predicted and measured")
    yield deviations_grid(result)
    for k, log in enumerate(result.logs):
        panels = [
            (name, unit_of_value(name), {"measured": measured, "reference": result.predicted[k][name]})
            for name, measured in log.quantities.items()
        ]
        held = f"not fitted from {log.time[result.fitted[k]]:.4g} s on" if result.fitted[k] < len(log.time) else ""
        caption = f"Measured, and (dashed) predicted with the values found; {held}.".replace("; .", ".")
        yield Picture(f"log{k + 1}", panels_figure(log.time, panels, log.name), caption)


def values_grid(result: FitOfCircuit) -> Grid:
    """The values found, with their intervals."""
    rows = []
    for each in result.free:
        width = result.interval(each.key)
        interval = f"± {shown_value(width, each.unit, 2)}" if isfinite(width) else "not known"
        interval = "at a bound" if result.at_bound(each) else interval
        if each.key in result.opened:
            interval = result.limit(each)
        bounds = f"{shown_value(each.lower, each.unit)} … {shown_value(each.upper, each.unit)}"
        value = shown_value(result.value(each.key), each.unit, 5)
        rows.append((each.key, shown_value(each.start, each.unit), value, interval, bounds))
    head = ("parameter", "in the file", "found", "95 % interval", "bounds")
    caption = "Intervals include the errors of the model, as far as the residuals show them."
    return Grid(head, tuple(rows), caption)


def correlations_grid(result: FitOfCircuit) -> Grid:
    """Correlations of the values found."""
    rows = []
    for key, line in zip(result.keys, result.correlations, strict=True):
        rows.append((key, *(f"{x:.2f}" if np.isfinite(x) and result.is_known(key) else "–" for x in line)))
    caption = "Of the errors of the values; near ±1 they can hardly be distinguished."
    return Grid(("", *result.keys), tuple(rows), caption)


def deviations_grid(result: FitOfCircuit) -> Grid:
    """NRMSE of each quantity, before and after, on the fitted part and on the one held out."""
    rows = []
    for k, log in enumerate(result.logs):
        for name in log.quantities:
            cells = [
                _in_percent(result.deviation(k, name, held, before)) if len(log.time[result.part(k, held)]) > 1 else "–"
                for held in (False, True)
                for before in (True, False)
            ]
            rows.append((log.name, name, *cells))
    head = ("log", "quantity", "fitted part: file", "found", "held out: file", "found")
    return Grid(head, tuple(rows), "RMS of the deviation, as a fraction of the range of the measured quantity.")


def _in_percent(deviation: Deviation) -> str:
    return f"{100.0 * deviation.nrmse:.2f} %" if deviation.range > 0.0 else "–"


def fit_sentences(result: FitOfCircuit) -> Iterator[str]:
    """What the log does not say, and what the model does not explain."""
    for key in result.without_influence:
        yield f"{key}: nothing that was measured depends on it."
    for group in result.inseparable:
        names = f"{', '.join(group[:-1])} and {group[-1]}"
        yield f"{names} can't be told apart: other values of them all fit as well. Fix one: the others follow."
    for each in (each for each in result.free if each.key in result.opened):
        larger = "Larger" if result.opened[each.key] > 0 else "Smaller"
        yield f"{each.key} is {result.limit(each)}. {larger} values fit as well: in this log, it acts on one side only."
    for one, other, correlation in result.alike():
        yield f"{one} and {other} can hardly be distinguished (correlation {correlation:.3f})."
    for each in result.free:
        if result.is_known(each.key) and result.at_bound(each):
            text = f"{each.key} is at a bound of its range: a better value may be beyond it."
            if sum(result.is_known(other.key) for other in result.free) > 1:
                text += " The intervals of the other values hold if this one is exact."
            yield text
    for k, log in enumerate(result.logs):
        if lacking := [name for name in result.circuit.inputs() if name not in log.inputs]:
            what = "the input is" if len(lacking) == 1 else "these inputs are"
            yield f"{log.file.name} lacks {', '.join(lacking)}: {what} 0 in the simulation (see --columns)."
        for name in log.quantities:
            yield unexplained(result, k, name)


def unexplained(result: FitOfCircuit, log: int, name: str) -> str:
    """Whether the model explains a quantity of a log down to its noise."""
    deviation, noise, unit = result.deviation(log, name, False), result.noise(log, name), unit_of_value(name)
    about = f"{result.logs[log].name}, {name}: the residuals are {shown_value(deviation.rms, unit, 2)} RMS"
    if deviation.rms <= UNEXPLAINED * noise:
        return f"{about}, the noise of the recording {shown_value(noise, unit, 2)}: explained down to the noise."
    part = result.part(log, False)
    difference = np.abs(result.predicted[log][name] - result.logs[log].quantities[name])[part]
    at = float(result.logs[log].time[int(np.argmax(difference))])
    text = f"{about}, {deviation.rms / noise:.2g} times the noise of the recording" if noise > 0.0 else about
    largest = f"{shown_value(deviation.largest, unit, 2)} at {at:.4g} s"
    if not deviation.range > 0.0:
        return f"{text}; the largest is {largest}. The recording does not change."
    if deviation.nrmse <= EXPLAINED:
        return f"{text}, and {100.0 * deviation.nrmse:.2g} % of the range; the largest is {largest}."
    return f"{text}: the model does not explain {100.0 * deviation.nrmse:.2g} % of the range; the largest is {largest}."


def fit_figures(result: FitOfCircuit) -> dict[str, Any]:
    """The result as data, SI."""
    parts = {"fitted": False} | ({"held_out": True} if result.fitted[0] < len(result.logs[0].time) - 1 else {})
    return {
        "circuit": str(result.file),
        "parameters": {
            each.key: {
                "in_file": each.start,
                "found": result.value(each.key),
                "interval_95": result.interval(each.key),
                "open_side": result.opened.get(each.key, 0),
                "lower": each.lower,
                "upper": each.upper,
                "unit": each.unit,
            }
            for each in result.free
        },
        "correlations": result.correlations.tolist(),
        "inseparable": [list(group) for group in result.inseparable],
        "without_influence": list(result.without_influence),
        "nrmse": {
            log.name: {
                name: {word: result.deviation(k, name, held).nrmse for word, held in parts.items()}
                for name in log.quantities
            }
            for k, log in enumerate(result.logs)
        },
    }
