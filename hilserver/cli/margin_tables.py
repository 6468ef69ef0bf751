"""Tables of the margins for the terminal: capacity, speed, frequencies, delay, flow servo."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, isinf, sqrt

from hilserver.cli.rig_tables import new_table
from hilserver.cli.tables import TerminalTable
from hilserver.margins.actuator_loop import LONGEST, LoopOfActuator
from hilserver.margins.actuators import MIN_MARGIN as LEAST_MARGIN
from hilserver.margins.actuators import ActuatorMargin
from hilserver.margins.capacity import TICKS_PER_PERIOD, CapacityResult, flow_text, inputs_text
from hilserver.margins.delay import MIN_MARGIN, PARAMETER_ERROR, DelayResult
from hilserver.margins.flow_servo import (
    MIN_GAIN_MARGIN,
    MIN_PHASE_MARGIN,
    ServoMargins,
    in_rig_file,
    margins_in_words,
)
from hilserver.margins.margins import RigMargins
from hilserver.tick.hybrid.displacement import FOLLOWING
from hilserver.units import shown_value

DROP = 35e5
"""Pressure drop over an edge, Pa, at which flow coefficients are shown as flows."""


def margin_tables(found: RigMargins) -> Iterator[TerminalTable]:
    """Capacity, speed, frequencies, delay, and the flow servo where there is a flow sensor: one table each."""
    yield _capacity_table(found.capacity)
    yield _speed_table(found.capacity)
    yield _frequency_table(found.capacity)
    yield _delay_table(found.delay)
    yield from map(_servo_table, found.servos)


def actuator_margin_table(found: tuple[ActuatorMargin, ...]) -> TerminalTable:
    """Critical delay of each actuator's node, and the delays that its strategies leave."""
    head = ("actuator", "critical delay", "strategy", "remaining delay", "margin", "withstands")
    table = new_table("Delay of actuators", *head)
    for each in found:
        for number, strategy in enumerate(FOLLOWING):
            margin, left = each.margin(strategy), each.remaining(strategy)
            table.add_row(
                each.name if number == 0 else "",
                _critical(each) if number == 0 else "",
                f"{strategy} (configured)" if strategy == each.strategy else strategy,
                f"{1e3 * left:.3g} ms" if left > 0.0 else "compensated",
                f"{margin:.3g}" if isfinite(margin) else "–",
                _withstood(each.loops.get(strategy)),
            )
    table.caption = (
        "Critical delay: of the specimen's force, at which the node begins to oscillate. Remaining: what the strategy "
        "does not compensate of the actuator's lag, with direct, and of the age of the measured force. Delays that the "
        "rig file does not state add to it. Margin: critical delay divided by the remaining one; at least "
        f"{LEAST_MARGIN:g} is recommended, above 1 required. Withstands: further delay of the commands with which the "
        "loop of circuit, actuator and specimen is still stable at rest."
    )
    return table


def _withstood(loop: LoopOfActuator | None) -> str:
    if loop is None:
        return "–"
    if not loop.is_stable:
        return f"oscillates at {loop.frequency:.3g} Hz"
    more = "≥ " if loop.withstands >= 0.99 * LONGEST else ""
    return f"{more}{1e3 * loop.withstands:.3g} ms"


def _critical(each: ActuatorMargin) -> str:
    if each.critical is None:
        return "none: the force does not move the node"
    if isinf(each.critical):
        return "none"
    return f"{1e3 * each.critical:.4g} ms at {each.frequency:.3g} Hz"


def _capacity_table(found: CapacityResult) -> TerminalTable:
    table = new_table(
        "Capacity", "valve", "direction", "circuit", "real valve", "margin", "at the real supply", "smallest at"
    )
    for capacity in found.capacities:
        if capacity.worst is None:
            table.add_row(capacity.valve, capacity.direction, "no flow", "", "", "", "")
            continue
        flows = [shown_value(C * sqrt(DROP), "m^3/s") for C in (capacity.needed, capacity.real)]
        margin = "?" if capacity.valve in found.assumed else f"{capacity.margin:.3g}"
        same = f"{capacity.same_drop:.3g}"
        table.add_row(capacity.valve, capacity.direction, *flows, same, margin, flow_text(capacity.worst))
    table.caption = (
        f"Flow at full command with {shown_value(DROP, 'Pa')} over an edge; margin: real valve divided by circuit, at "
        "the same drop and at the real supply. At least 1 is required."
    )
    if found.assumed:
        table.caption += f" The real supply of {', '.join(found.assumed)} is unknown until it is measured."
    return table


def _speed_table(found: CapacityResult) -> TerminalTable:
    table = new_table(
        "Speed", "valve", "requested after a step of the inputs", "the spool reaches", "slew allows", "margin"
    )
    for speed in found.speeds:
        requested = f"{speed.requested:.3g} 1/s" + (f" ({inputs_text(speed.step)})" if speed.requested else "")
        margin = "-" if isinf(speed.margin) else f"{speed.margin:.3g}"
        table.add_row(speed.valve, requested, f"{speed.spool:.3g} 1/s", f"{speed.slew:.3g} 1/s", margin)
    table.caption = "Change of the real valve's opening, full strokes per second. Below 1, the valve lags after a step."
    return table


def _frequency_table(found: CapacityResult) -> TerminalTable:
    table = new_table("Highest significant frequencies", "of", "frequency", "ticks per period")
    for frequency in found.frequencies:
        table.add_row(frequency.what, shown_value(frequency.hertz, "Hz", 3), f"{frequency.ticks:.3g}")
    table.caption = f"At least {TICKS_PER_PERIOD:g} ticks per period are required."
    return table


def _delay_table(found: DelayResult) -> TerminalTable:
    if found.missing:
        table = new_table("Delay", "unknown")
        table.add_row(found.missing)
        return table
    slower = f"delay, all {PARAMETER_ERROR:.0%} slower"
    table = new_table("Delay", "strategy", "delay", slower, "critical delay", "frequency", "margin", "at")
    for margin in found.margins:
        delays = [f"{1e3 * margin.delay:.2f} ms", f"{1e3 * margin.delay_off:.2f} ms"]
        if margin.where is None:
            table.add_row(margin.strategy, *delays, "none", "", "any", "")
        else:
            critical = [
                f"{1e3 * margin.critical:.2f} ms",
                shown_value(margin.frequency, "Hz", 3),
                f"{margin.margin:.3g}",
            ]
            table.add_row(margin.strategy, *delays, *critical, str(margin.where))
    table.caption = (
        f"Machine: {found.origin}, at {len(found.points)} operating points. Margin: critical delay divided by actual "
        f"delay, with all parameters off; at least {MIN_MARGIN:g} is required."
    )
    if (point := found.least_tolerant()) is not None:
        frequency = shown_value(point.softness.frequency, "Hz", 2)
        table.caption += (
            f" feedback and adaptive: if the chambers are {point.softness.share:.0%} softer than stated, or more, the "
            f"correction of the volume makes the loop oscillate at {frequency} ({point})."
        )
    if not found.supply_known:
        table.caption += " Without the damping of the real valves: their supply is unknown until it is measured."
    return table


def _servo_table(servo: ServoMargins) -> TerminalTable:
    table = new_table(f"Flow servo of valve {servo.valve}, with {servo.at}", "", "configured", "calculated")
    configured, calculated = ({**in_rig_file(loop.pid), **margins_in_words(loop)} for loop in (servo.loop, servo.tuned))
    for name, value in configured.items():
        table.add_row(name, value.strip('"'), calculated[name].strip('"'))
    table.caption = (
        f"Gain and phase margin of at least {MIN_GAIN_MARGIN:g} and {MIN_PHASE_MARGIN:g}° are required. "
        "Calculated: for the valve of the rig file; hilserver identify does it for the measured one."
    )
    return table
