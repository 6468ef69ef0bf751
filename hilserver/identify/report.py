"""Results of identification: a fragment of the rig file, notes, and a report with plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hilserver.components.shared.edges import NominalFlow
from hilserver.identify.evaluation import EvaluatedValve, Evaluation
from hilserver.identify.findings import IdentifiedValue, identified_delay, joined, leakage_point, separates_delay
from hilserver.identify.identification import Identified
from hilserver.identify.machine import Restriction
from hilserver.identify.motor_chamber import MotorChamber
from hilserver.identify.plots import bode_figure, flow_figure, residual_figure, servo_figure
from hilserver.identify.servo import NO_SENSOR, servo_lines, servo_table
from hilserver.identify.suspicions import about_the_delay, correction_table, flow_signal_line, suspicion_table
from hilserver.identify.withheld import advice, reason_of_valve
from hilserver.margins.flow_servo import in_words
from hilserver.report.document import Block, Document, Grid, Heading, Listing, Picture
from hilserver.units import shown_value

PISTON_DROP = 1e7
"""Pa, at which leakage past the piston or through the motor is stated."""
WIDE = 0.4
"""Opening that a recording should reach: from less, the flow at full command is an extrapolation."""
ABOUT_FLOW = "Flow versus spool position at the nominal drop: measured (means of many samples) and modelled."
ABOUT_BODE = (
    "Frequency response of the spool: modelled, and measured (with one standard deviation) by the ratio of measured to "
    "modelled flow."
)
ABOUT_RESIDUALS = (
    "Residuals of the model, whitened: over time, and their autocorrelation with the band that contains 95 % of the "
    "values of white noise."
)
ABOUT_CORRECTIONS = (
    "The machine differs from the rig file, and the fragment states by how much: once it is merged, the model "
    "describes these effects. All identified values take them into account."
)
ABOUT_SUSPICIONS = (
    "Effects in the recording that the fragment of the rig file does not correct: the model describes them "
    "differently, or not at all. The standard deviations of the identified values include them as far as the residuals "
    "show them; the experiments would confirm them."
)
ABOUT_SERVO = (
    "Flow servo with these settings: open loop with the margins at the largest pressure drop, and closed loop from "
    "virtual to measured flow. At smaller pressure drops the margins are larger, and the servo is slower."
)

ABOUT_MACHINE = (
    "Properties of the machine and its sensors that the same recording shows. A dead volume contains its hoses, and "
    "whatever else makes the chamber softer than oil and air alone would; the line is its part before a restriction. "
    "Noise is that of successive samples."
)
LITTLE_KNOWN = (
    "Most values are not identifiable: the movements are too small, slow or few for them, or the model does not "
    "describe them, so that parts of the recording contradict each other. Enter or exclude what is suspected, then "
    "record larger commands (--largest) and a longer sequence (--seconds)."
)
MANY_KNOWN = 0.5
"""Share of a valve's properties below which the fragment says why."""
COLUMNS = ("", "identified", "standard deviation", "rig file")


# --- the fragment of the rig file -------------------------------------------------------------------------------------


def fragment(evaluation: Evaluation) -> str:
    """TOML for the rig file: identified values with standard deviations; others as comments."""
    recording = evaluation.recording
    lines = [
        f"# hilserver identify: {recording.duration:.0f} s of {recording.source}",
        "# Each value is followed by its standard deviation. Merge the keys into the rig file (--apply does).",
    ]
    if curves := evaluation.suggested_curves:
        for name, curve in curves.items():
            lines += ["", f"[valves.{name}]", *_curve_lines(curve)]
        return "\n".join(lines) + "\n"
    for valve in evaluation.valves:
        suspicions = _suspicion_lines(evaluation, valve)
        of_bridge = [*_servo_lines(valve), *_feedback_lines(valve)]
        lines += ["", f"[valves.{valve.name}]", *_advice_comment(valve), *_valve_lines(valve), *suspicions, *of_bridge]
    for table, values in evaluation.machine.items():
        lines += ["", f"[{table}]"]
        for f in values:
            reason = evaluation.reason_of_machine(f.key)
            lines.append(value_line(f, _machine_value(f), reason) if f.key else _without_key(f, reason))
    return "\n".join(lines) + "\n"


def reasons_for_nothing(evaluation: Evaluation) -> list[str]:
    """Why the fragment has no value, in sentences."""
    return [f"Valve {valve.name}: {advice(valve.found) or LITTLE_KNOWN}" for valve in evaluation.valves]


def advice_lines(evaluation: Evaluation) -> list[str]:
    """What to do about spools that do not move as the model describes, in sentences."""
    return [f"Valve {valve.name}: {text}" for valve in evaluation.valves if (text := advice(valve.found))]


def _advice_comment(valve: EvaluatedValve) -> list[str]:
    return [f"# {advice(valve.found)}"] if valve.found.is_speed_limited else []


def _as_comments(lines: Sequence[str]) -> list[str]:
    return [line if line.startswith("#") else f"# {line}".rstrip() for line in lines]


def _servo_lines(valve: EvaluatedValve) -> list[str]:
    """Settings of the flow servo: as comments if they are tuned for a motion that is not merged."""
    lines = servo_lines(valve.name, valve.servo)
    return _as_comments(lines) if valve.found.is_speed_limited else lines


def _curve_lines(curve: Sequence[tuple[float, float]]) -> list[str]:
    return [
        "# The flow is not proportional to the opening. Identify again with this curve: all other values depend on it.",
        f"{flow_signal_line(curve)} # from the mean flows",
        "# remove from the rig file: overlap",
    ]


def _valve_lines(valve: EvaluatedValve) -> list[str]:
    found, lines = valve.found, []
    v = found.experiment.settings
    by_key = {f.key: f for f in valve.findings}
    for f in [*valve.findings, *(f for f in valve.trust if f.key == "flow_drift")]:
        if f.key in ("", "gone_at"):
            continue
        estimate = f.estimate
        if not estimate.is_known:
            lines.append(f"# {f.key}: not identifiable from this recording")
            continue
        if f.key == "nominal_flow":
            value = _point(f, v.nominal_flow)
        elif f.key == "nominal_flow_to_tank":
            value = _point(f, v.nominal_flow_AT)
        elif f.key == "leakage":
            value = _leakage_value(found, f, by_key["gone_at"])
        elif f.key in ("delay", "overlap"):
            value = toml_value(f, max(estimate.value, 0.0))
        elif f.key == "hysteresis":  # to compensate for one that is not there would be noise
            value = toml_value(f, estimate.value if estimate.value > 2.0 * estimate.deviation else 0.0)
        else:
            value = toml_value(f)
        lines.append(value_line(f, value, reason_of_valve(found, f.key)))
    lines += [f"# {text}" for text in little_known(valve)]
    if keys := _of_other_order(found):
        lines.append(f"# remove from the rig file: {' and '.join(keys)}")
    lines += [f"# {text}" for text in extrapolated(found)]
    return lines


def little_known(valve: EvaluatedValve) -> list[str]:
    """Why, and what to record, where the recording determines less than half of the properties; in sentences."""
    known = [f.estimate.is_known for f in valve.findings]
    return [LITTLE_KNOWN] if sum(known) < MANY_KNOWN * len(known) and not valve.found.is_always_late else []


def _suspicion_lines(evaluation: Evaluation, valve: EvaluatedValve) -> list[str]:
    corrected = [f"# corrected by {s.key}: {s.structure}: {s.figure}" for s in evaluation.corrected(valve)]
    lines = corrected
    for s in evaluation.suspected(valve):
        lines.append(f"# suspected: {s.structure}: {s.figure} (expected: {s.usual})")
        lines += [f"# {s.trial}"] if s.trial else []
    return lines


def extrapolated(found: Identified) -> list[str]:
    """What the recording does not show of the flow at large openings, in words, if they are missing."""
    most = found.experiment.largest_opening(found.values)
    if most > WIDE:
        return []
    return [f"The recording only has openings up to {most:.0%} of the stroke: beyond it, the flow is extrapolated."]


def _feedback_lines(valve: EvaluatedValve) -> list[str]:
    """The feedback time where it changes; the settings of the servo have begun its table where there are any."""
    changed = [f for f in valve.trust if f.key == "feedback_time" and f.estimate.value != f.configured]
    is_begun = valve.servo is not None and not valve.found.is_speed_limited
    begun = [] if is_begun else ["", f"[valves.{valve.name}.bridge]"]
    lines = [*begun, *(value_line(f, toml_value(f)) for f in changed)] if changed else []
    return _as_comments(lines) if valve.found.is_always_late else lines


def obsolete(evaluation: Evaluation) -> dict[str, tuple[str, ...]]:
    """By valve, the keys of the rig file that the fragment replaces by others."""
    if curves := evaluation.suggested_curves:
        return dict.fromkeys(curves, ("overlap",))
    return {v.name: _of_other_order(v.found) for v in evaluation.valves}


def _of_other_order(found: Identified) -> tuple[str, ...]:
    """Keys that belong to a spool model of the other order, where this one replaces it."""
    if not separates_delay(found) or found.second_order != (found.experiment.settings.f45 is not None):
        return ()
    return ("f45",) if found.second_order else ("f90", "damping")


def _machine_value(f: IdentifiedValue) -> str:
    """A value of a cylinder, motor or channel; a restriction as its drop at a flow."""
    if not isinstance(f, Restriction):
        return toml_value(f)
    flow, transition = shown_value(f.flow, "m^3/s", 5), shown_value(f.transition, "Pa", 2)
    return f'{{ flow = "{flow}", drop = {toml_value(f)}, transition_pressure = "{transition}" }}'


def _without_key(f: IdentifiedValue, reason: str = "") -> str:
    return f"# {f.name}: {f.text()} ± {f.deviation_text()}{_because(reason, 'wrong')}"


def value_line(f: IdentifiedValue, value: str, reason: str = "") -> str:
    """A value with its deviation; with a reason not to merge it, as a comment."""
    beginning = "# " if reason else ""
    return f"{beginning}{f.key} = {value}".ljust(78) + f" # ± {f.deviation_text()}{_because(reason, 'not merged')}"


def _because(reason: str, what: str) -> str:
    return f", {what}: {reason}" if reason else ""


def toml_value(f: IdentifiedValue, value: float | None = None) -> str:
    """Its value, or this one with the same number of digits."""
    shown = f if value is None else replace(f, estimate=replace(f.estimate, value=value))
    return f'"{shown.text()}"' if f.unit else shown.text()


def _point(f: IdentifiedValue, point: NominalFlow) -> str:
    drop = shown_value(point.drop, "Pa", 6)
    return f'{{ flow = {toml_value(f)}, drop = "{drop}", per = "{point.per}" }}'


def _leakage_value(found: Identified, f: IdentifiedValue, gone: IdentifiedValue) -> str:
    point = leakage_point(found)
    drop = shown_value(point.drop, "Pa", 6)
    text = f'{{ flow = {toml_value(f)}, drop = "{drop}", per = "{point.per}"'
    if gone.estimate.is_known:
        text += f", gone_at = {toml_value(gone)}"
    elif gone.configured is not None:
        text += f", gone_at = {gone.configured:g}"
    return text + " }"


# --- the report -------------------------------------------------------------------------------------------------------


def document(evaluation: Evaluation) -> Document:
    """The report."""
    recording, rig = evaluation.recording, evaluation.results[0].experiment.rig
    blocks: list[Block] = [
        f"{recording.duration:.1f} s of {recording.source}, {1.0 / recording.dt:g} samples per second; "
        f"{np.mean(recording.known):.1%} of them are usable.",
    ]
    for valve in evaluation.valves:
        name, found = valve.name, valve.found
        blocks += [
            Heading(f"Valve {name}"),
            table(valve),
            Listing(tuple(notes(valve))),
            *_suspicion_blocks(evaluation, valve),
            Picture(f"{name}-flow", flow_figure(found), ABOUT_FLOW),
            Picture(f"{name}-bode", bode_figure(found), ABOUT_BODE),
            Picture(f"{name}-residuals", residual_figure(found), ABOUT_RESIDUALS),
            *_servo_blocks(valve),
        ]
    blocks += machine_blocks(evaluation)
    return Document(f"{rig.settings.name}: identified valves", blocks)


def machine_blocks(evaluation: Evaluation) -> list[Block]:
    """Machine and sensors, as far as the recording shows them."""
    recording = evaluation.recording
    rows = [(table, f.name, *cells_of(f)) for table, values in evaluation.machine.items() for f in values]
    blocks: list[Block] = [ABOUT_MACHINE, Grid(("", *COLUMNS), tuple(rows))] if rows else []
    blocks += [Listing(recording.notes)] if recording.notes else []
    return [Heading("Machine and sensors"), *blocks] if blocks else []


def _suspicion_blocks(evaluation: Evaluation, valve: EvaluatedValve) -> list[Block]:
    blocks: list[Block] = []
    if corrected := evaluation.corrected(valve):
        heading = Heading(f"Errors of the rig file that valve {valve.name} shows")
        blocks += [heading, ABOUT_CORRECTIONS, correction_table(corrected)]
    if not (suspected := evaluation.suspected(valve)):
        return [*blocks, "No model errors are suspected: the residuals do not follow the command."]
    heading = Heading(f"Suspected model errors of valve {valve.name}")
    return [*blocks, heading, ABOUT_SUSPICIONS, suspicion_table(suspected)]


def _servo_blocks(valve: EvaluatedValve) -> list[Block]:
    name, servo = valve.name, valve.servo
    heading = Heading(f"Flow servo of valve {name}")
    if servo is None:
        return [heading, NO_SENSOR.format(name)]
    settings = f"Tuned for the highest recorded supply pressure across one edge: {in_words(servo.pid)}."
    return [heading, settings, servo_table(servo), Picture(f"{name}-servo", servo_figure(servo), ABOUT_SERVO)]


def table(valve: EvaluatedValve) -> Grid:
    """Identified and configured values."""
    return Grid(COLUMNS, tuple((f.name, *cells_of(f)) for f in [*valve.findings, *valve.trust]))


def cells_of(f: IdentifiedValue) -> tuple[str, str, str]:
    """Identified value, its deviation, configured value."""
    configured = "" if f.configured is None else joined(f"{f.configured * f.factor:.5g}", f.unit)
    return f.text() if f.estimate.is_known else "-", f.deviation_text(), configured


def notes(valve: EvaluatedValve) -> list[str]:
    """The signals behind the values, and further observations."""
    found = valve.found
    e = found.experiment
    sources = [f"the oil in the chamber at port {c.port} (position and pressure)" for c in e.chambers]
    sources += [f"the flow sensor {e.flow.channel}"] if e.flow else []
    sources += [f"the spool sensor {e.spool.channel}"] if e.spool else []
    lines = [f"Identified from: {', '.join(sources)}. Order of the spool model: {2 if found.second_order else 1}."]
    if found.is_speed_limited:
        lines.append(advice(found))
    elif not separates_delay(found):
        lag = IdentifiedValue("", "", found.estimate("lag"), None, "ms", 1e3)
        lines.append(
            "The recording has too little fast movement to separate the delay from the lag of the spool: their sum is "
            f"{lag.text()} ± {lag.deviation_text()}. The lag of the spool is taken from the rig file; the "
            "remainder is delay."
        )
    if found.suggested_curve:
        lines.append(
            "The flow is not proportional to the opening, so that these values are a compromise. The fragment of the "
            "rig file has the curve of the mean flows, flow_signal: merge it (--apply does), and identify again."
        )
    lines += extrapolated(found)
    lines.append(about_the_delay(found))
    leak, gain = found.estimate("piston_leakage"), found.estimate("flow_gain")
    if leak.is_significant():
        shown = [shown_value(each * PISTON_DROP, "m^3/s", 2) for each in (leak.value, leak.deviation)]
        where = "from port to port of the motor" if isinstance(e.chambers[0], MotorChamber) else "past the piston"
        lines.append(f"Leakage {where}: {shown[0]} ± {shown[1]} at {shown_value(PISTON_DROP, 'Pa')}.")
    if e.flow and gain.shifted(-1.0).is_significant(0.005):
        lines.append(
            f"The flow sensor {e.flow.channel} reads {gain.value:.4f} ± {gain.deviation:.2g} times the flow into the "
            f"chamber; the flow coefficients are those determined from the chamber."
        )
    for word, sensor in (("flow", e.flow), ("spool", e.spool)):
        late = found.estimate(f"{word}_delay")
        if sensor and late.is_significant(1e-4):
            more = late.shifted(found.lateness.value if found.lateness else 0.0).scaled(1e3)
            known = e.rig.settings.channels[sensor.channel].delay * 1e3
            lines.append(
                f"The {word} sensor {sensor.channel} lags {more.value:.2f} ms ± {more.deviation:.2g} ms more than "
                f'configured: set its delay = "{more.value + known:.2g} ms".'
            )
    delay = identified_delay(found)
    if delay.value < 0.0 and delay.is_significant():
        lines.append("The delay is negative: the configured delays of the channels are too long.")
    unknown = [f"{f.name} ({f.key})" if f.key else f.name for f in valve.findings if not f.estimate.is_known]
    if unknown and not found.suggested_curve:
        lines.append(
            f"Not identifiable from this recording, and left as in the rig file: {', '.join(unknown)}. Larger commands "
            "(--largest) and a longer sequence (--seconds) show more."
        )
    return lines
