"""What `identify` has to say: a fragment of the rig file, sentences, and a report with plots."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from hilserver.components.shared.edges import NominalFlow
from hilserver.identify.findings import Finding, delay_deviation, findings, joined, leakage_point, rounded
from hilserver.identify.fit import Fit
from hilserver.identify.identification import SIGNIFICANT, Identified, delay_of
from hilserver.identify.plots import bode_figure, flow_figure, residual_figure
from hilserver.identify.recorded import Recording
from hilserver.report.document import Block, Document, Grid, Heading, Listing, Picture
from hilserver.units import BAR, L_MIN

ABOUT_FLOW = "Flow over the spool's position, at the nominal drop: measured, means of many samples, and the model."
ABOUT_BODE = (
    "Frequency response of the spool: the model, and measured (with one standard deviation), by the ratio of measured "
    "to modelled flow."
)
ABOUT_RESIDUALS = (
    "What the model does not explain, filtered so that it should be white: over time, and its autocorrelation with the "
    "band that holds 95 % of it by chance."
)

# --- the fragment of the rig file -------------------------------------------------------------------------------------


def fragment(results: Sequence[Identified], recording: Recording) -> str:
    """TOML to be put into the rig file: what was found, with standard deviations; what was not, as comments."""
    lines = [
        f"# hilserver identify: {recording.duration:.0f} s of {recording.source}",
        "# One standard deviation behind each value. Merge the keys into the rig file.",
    ]
    for found in results:
        lines += ["", f"[valves.{found.experiment.valve}]", *_valve_lines(found)]
    return "\n".join(lines) + "\n"


def _valve_lines(found: Identified) -> list[str]:
    v, lines = found.experiment.settings, []
    by_key = {f.key: f for f in findings(found)}
    for f in findings(found):
        if f.key in ("", "gone_at"):
            continue
        if not f.known:
            lines.append(f"# {f.key}: not identifiable from this recording")
            continue
        if f.key == "nominal_flow":
            value = _point(f, v.nominal_flow)
        elif f.key == "nominal_flow_to_tank":
            value = _point(f, v.nominal_flow_to_tank or v.nominal_flow)
        elif f.key == "leakage":
            value = _leakage_value(found, f, by_key["gone_at"])
        elif f.key in ("delay", "overlap"):
            value = _toml(f, max(f.value, 0.0))
        else:
            value = _toml(f, f.value)
        lines.append(f"{f.key} = {value}".ljust(78) + f" # ± {f.deviation_text()}")
    replaced = "f45" if found.second_order else "f90 and damping"
    if found.second_order == (v.f45 is not None):
        lines.append(f"# take out of the rig file: {replaced}")
    hysteresis = by_key.get("")
    others = {f.name: f for f in findings(found)}
    hysteresis = others["hysteresis"]
    if hysteresis.known:
        lines.append(
            f"# hysteresis: {hysteresis.text()} ± {hysteresis.deviation_text()} of full command; there is no key for it"
        )
    return lines


def _toml(f: Finding, value: float) -> str:
    text = rounded(value * f.factor, f.deviation * f.factor)
    return f'"{text} {f.unit}"' if f.unit else text


def _point(f: Finding, point: NominalFlow) -> str:
    return f'{{ flow = {_toml(f, f.value)}, drop = "{point.drop / BAR:g} bar", per = "{point.per}" }}'


def _leakage_value(found: Identified, f: Finding, gone: Finding) -> str:
    point = leakage_point(found)
    text = f'{{ flow = {_toml(f, f.value)}, drop = "{point.drop / BAR:g} bar", per = "{point.per}"'
    if gone.known:
        text += f", gone_at = {rounded(gone.value, gone.deviation)}"
    elif gone.configured is not None:
        text += f", gone_at = {gone.configured:g}"
    return text + " }"


# --- the report -------------------------------------------------------------------------------------------------------


def document(results: Sequence[Identified], recording: Recording) -> Document:
    """The report."""
    rig = results[0].experiment.rig
    blocks: list[Block] = [
        f"{recording.duration:.1f} s of {recording.source}, {1.0 / recording.dt:g} samples per second; "
        f"{np.mean(recording.known):.1%} of them can be used.",
    ]
    for found in results:
        name = found.experiment.valve
        blocks += [
            Heading(f"Valve {name}"),
            table(found),
            Listing(tuple(notes(found))),
            Picture(f"{name}-flow", flow_figure(found), ABOUT_FLOW),
            Picture(f"{name}-bode", bode_figure(found), ABOUT_BODE),
            Picture(f"{name}-residuals", residual_figure(found), ABOUT_RESIDUALS),
        ]
    return Document(f"{rig.settings.name}: identified valves", blocks)


def table(found: Identified) -> Grid:
    """What was found, beside what is configured."""
    rows = []
    for f in findings(found):
        configured = "" if f.configured is None else joined(f"{f.configured * f.factor:.5g}", f.unit)
        rows.append((f.name, f.text() if f.known else "-", f.deviation_text(), configured))
    return Grid(("", "found", "standard deviation", "rig file"), tuple(rows))


def notes(found: Identified) -> list[str]:
    """What the numbers rest on, and what else was seen."""
    e, fit, values = found.experiment, found.fit, found.values
    seen = [f"the oil in the chamber at port {c.port} (position and pressure)" for c in e.chambers]
    seen += [f"the flow sensor {e.flow.channel}"] if e.flow else []
    seen += [f"the spool sensor {e.spool.channel}"] if e.spool else []
    lines = [
        f"Seen by: {', '.join(seen)}. The spool counts as one of {'second' if found.second_order else 'first'} order."
    ]
    if not all(name in fit.deviations for name in ("frequency", *(["damping"] if found.second_order else []))):
        lag = Finding("", "", values["lag"], fit.deviations.get("lag", inf), None, "ms", 1e3)
        lines.append(
            "The recording has too little fast movement to tell the delay from the spool's lag: their sum is "
            f"{lag.text()} ± {lag.deviation_text()}; the frequency was taken as configured."
        )
    lines.append(
        "The delay is that between command and spool, as far as the delays of the channels are right: what is missing "
        "in those is in it."
    )
    for chamber in e.chambers:
        name = f"elasticity {chamber.port}"
        if _significant(fit, name, values[name] - 1.0, 0.03):
            share = f"{values[name]:.3f} ± {fit.deviations[name]:.2g}"
            lines.append(
                f"The oil at port {chamber.port} gives {share} times as much as configured "
                "(bulk_modulus, dead volumes, air)."
            )
    if _significant(fit, "piston_leakage", values.get("piston_leakage", 0.0), 0.0):
        lines.append(f"Oil passes the piston: {values['piston_leakage'] / L_MIN * 100 * BAR:.2g} l/min at 100 bar.")
    if e.flow and _significant(fit, "flow_gain", values.get("flow_gain", 1.0) - 1.0, 0.005):
        gain = f"{values['flow_gain']:.4f} ± {fit.deviations['flow_gain']:.2g}"
        lines.append(
            f"The flow sensor {e.flow.channel} reads {gain} times what "
            "goes into the chamber; the flow coefficients are by the chamber."
        )
    for word, sensor in (("flow", e.flow), ("spool", e.spool)):
        late = f"{word}_delay"
        if sensor and _significant(fit, late, values.get(late, 0.0), 1e-4):
            more, known = values[late] * 1e3, e.rig.settings.channels[sensor.channel].delay * 1e3
            lines.append(
                f"The {word} sensor {sensor.channel} is {more:.2f} ms ± {fit.deviations[late] * 1e3:.2g} ms later than "
                f'its channel says: give it delay = "{more + known:.2g} ms".'
            )
    if delay_of(values) < -SIGNIFICANT * delay_deviation(found):
        lines.append("The delay is below 0: the delays of the channels are given too long.")
    lines += [f"Not identifiable, taken as configured: {', '.join(found.left_out)}."] if found.left_out else []
    return lines


def _significant(fit: Fit, name: str, off: float, least: float) -> bool:
    sd = fit.deviations.get(name, inf)
    return abs(off) > SIGNIFICANT * sd and abs(off) > least
