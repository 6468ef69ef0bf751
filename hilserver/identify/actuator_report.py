"""Identified actuators: a fragment of the rig file, sentences, and a report with plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from hilserver.displacement.servo import SPECIMEN
from hilserver.identify.actuator_findings import (
    delays,
    excited_to,
    noises,
    not_determined,
    qualities,
    resonance,
    servo_and_specimen,
    suspicions,
    uncertainty,
)
from hilserver.identify.actuator_fit import IdentifiedActuator
from hilserver.identify.findings import IdentifiedValue
from hilserver.identify.report import cells_of, toml_value, value_line
from hilserver.report.document import Block, Document, Grid, Heading, Listing, Picture
from hilserver.units import shown_value

COLUMNS = ("", "rig file", "identified", "standard deviation")
SHOWN = 0.3
"""s of the recording in the plot of the errors, where the force is largest."""
NOT_WHITE = "the errors of the prediction are more than noise, and friction looks like a late sensor"
ABOUT_ERRORS = (
    "Errors of the prediction, measured minus predicted, over the whole recording, and measured and predicted values "
    "where the force is largest."
)


def actuator_fragment(results: Sequence[IdentifiedActuator]) -> str:
    """TOML for the rig file: identified values with standard deviations; others as comments."""
    record = results[0].record
    lines = [
        f"# hilserver identify: {record.duration:.0f} s of {record.source}",
        "# Each value is followed by its standard deviation. Merge the keys into the rig file (--apply does).",
    ]
    channels: dict[str, list[str]] = {}
    for found in results:
        name, late = found.record.name, delays(found)
        values = servo_and_specimen(found)
        of_specimen = [replace(v, key=v.key.removeprefix(SPECIMEN)) for v in values if v.key.startswith(SPECIMEN)]
        lines += ["", f"[actuators.{name}]", _line(late.pop("")), *_uncertainty_lines(found)]
        lines += ["", f"[actuators.{name}.servo]", *(_line(v) for v in values if not v.key.startswith(SPECIMEN))]
        lines += ["", f"[actuators.{name}.specimen]", *(_line(v) for v in of_specimen)]
        sure = all(q.is_white for q in qualities(found))
        for channel, value in late.items():
            channels.setdefault(channel, []).append(value_line(value, toml_value(value), "" if sure else NOT_WHITE))
        for channel, value in noises(found).items():
            channels.setdefault(channel, []).append(_line(value))
        lines += [f"# {text}" for text in sentences(found)[1:]]
    for channel, of_channel in channels.items():
        lines += ["", f"[channels.{channel}]", *of_channel]
    return "\n".join(lines) + "\n"


def _line(value: IdentifiedValue) -> str:
    if not value.estimate.is_known:
        return f"# {value.key}: not identifiable from this recording; the other values go with {value.text()}"
    return value_line(value, toml_value(value))


def _uncertainty_lines(found: IdentifiedActuator) -> list[str]:
    shares = uncertainty(found)
    if not shares:
        return []
    text = ", ".join(f"{name} = {share:.2g}" for name, share in shares.items())
    return [f"uncertainty = {{ {text} }}"]


def sentences(found: IdentifiedActuator) -> list[str]:
    """How well the model predicts the recording, what it lacks, and what is not determined."""
    displacement, force = qualities(found)
    parts = "" if found.record.gaps == 0 else f", in {found.record.gaps + 1} parts,"
    white = "white noise" if displacement.is_white and force.is_white else "not only noise"
    lines = [
        f"Actuator {found.record.name}: {found.record.duration:.1f} s{parts} with motion up to "
        f"{excited_to(found):.3g} Hz. Predicted are {displacement.explained:.3%} of the displacement and "
        f"{force.explained:.4%} of the force; the errors, {shown_value(displacement.error, 'm', 2)} and "
        f"{shown_value(force.error, 'N', 2)}, are {white}. The model is "
        f"{'stable' if found.decay > 0.0 else 'not stable'}; mass and oil resonate at {resonance(found):.3g} Hz.",
        "The delay of the command is that until the displacement is measured, minus the delay that the rig file states "
        f"of channel {found.record.displacement.channel}: a recording shows only their sum.",
    ]
    for word, unit in (("displacement", "m"), ("force", "N")):
        zero = found.estimate(f"{word} zero")
        if zero.is_significant():
            shown = [shown_value(each, unit, 2) for each in (zero.value, zero.deviation)]
            lines.append(f"The measured {word} is {shown[0]} ± {shown[1]} at rest with command 0.")
    return [*lines, *suspicions(found), *not_determined(found)]


def actuator_table(found: IdentifiedActuator) -> Grid:
    """Stated and identified values."""
    values = [*servo_and_specimen(found), *delays(found).values(), *noises(found).values()]
    rows = [(v.name, configured, value, deviation) for v in values for value, deviation, configured in [cells_of(v)]]
    return Grid(COLUMNS, tuple(rows))


def actuator_document(results: Sequence[IdentifiedActuator]) -> Document:
    """The report."""
    record = results[0].record
    blocks: list[Block] = [f"{record.source}, {1.0 / record.dt:g} samples per second."]
    for found in results:
        name = found.record.name
        blocks += [Heading(f"Actuator {name}"), actuator_table(found), Listing(tuple(sentences(found)))]
        blocks.append(Picture(f"{name}-errors", error_figure(found), ABOUT_ERRORS))
    return Document(f"{record.rig.settings.name}: identified actuators", blocks)


def error_figure(found: IdentifiedActuator) -> Figure:
    """Errors over time, and a part of the recording as measured and predicted."""
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2)
    sensors = ((found.record.displacement, 1e3, "mm"), (found.record.force, 1e-3, "kN"))
    for k, (sensor, factor, unit) in enumerate(sensors):
        used = found.prediction.used[k]
        time, value, error = sensor.time[used], sensor.value[used], found.residuals[k]
        axes[k, 0].plot(time, error * factor, lw=0.4)
        axes[k, 0].set(xlabel="time, s", ylabel=f"error of {sensor.channel}, {unit}")
        middle = time[int(np.argmax(np.abs(value - value.mean())))]
        part = slice(*np.searchsorted(time, [middle - 0.5 * SHOWN, middle + 0.5 * SHOWN]))
        axes[k, 1].plot(time[part], value[part] * factor, ".", ms=2, label="measured")
        axes[k, 1].plot(time[part], (value - error)[part] * factor, lw=0.9, label="predicted")
        axes[k, 1].set(xlabel="time, s", ylabel=f"{sensor.channel}, {unit}")
        axes[k, 1].legend(fontsize=7)
    return figure
