"""The state of the actuators whose position is controlled: what they follow, how well, and what their bridges track."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hilserver.numerics.arrays import Floats
from hilserver.protocol.driven import ActuatorStatus, LearnedValue
from hilserver.rig.actuator_settings import ActuatorSettings, ServoSettings, SpecimenSettings, spread_of
from hilserver.rig.rig import Rig
from hilserver.tick.codes import Saturation
from hilserver.tick.hybrid.displacement import MAX_DEVIATIONS, DisplacementStrategy
from hilserver.tick.hybrid.memory import STATES, memory_of, scratch_cells, take_covariance
from hilserver.tick.row import ActuatorState, actuator_state
from hilserver.units import Unit

AT_BOUND = 1e-6
"""Deviation from a bound, in standard deviations, within which a value counts as at it."""
KNOWN = 0.5
"""A value is known if its standard deviation is less than this share of the stated one."""


def actuator_statuses(rig: Rig, row: Floats) -> dict[str, ActuatorStatus]:
    """The state of each actuator in this row, by name."""
    return {name: _status(rig, row, i, name) for i, name in enumerate(rig.settings.actuators)}


def learned_of_actuators(rig: Rig, row: Floats) -> dict[str, dict[str, LearnedValue]]:
    """What the bridges of the actuators track, by actuator and name in ``uncertainty``; of those that name anything."""
    return {
        name: dict(_learned(rig, row, i, settings))
        for i, (name, settings) in enumerate(rig.settings.actuators.items())
        if settings.uncertainty
    }


def parameter_columns(rig: Rig) -> dict[str, str]:
    """The tracked parameters of all actuators: channel of the telemetry -> column of the row."""
    return {
        f"actuator.{name}.{parameter}": f"actuator.{name}.memory_{STATES + 1 + k}"
        for name, settings in rig.settings.actuators.items()
        for k, parameter in enumerate(settings.uncertainty)
    }


def _status(rig: Rig, row: Floats, i: int, name: str) -> ActuatorStatus:
    settings, a, b = rig.settings.actuators[name], rig.plan.actuator[i], actuator_state(rig.plan, row, i)
    known = bool(b.known)
    return ActuatorStatus(
        strategy=DisplacementStrategy(int(b.strategy)).name,
        position=_number(b.position) or 0.0,
        measured=_number(row[a.column_x]) if _sampled(rig, row, settings.position) else None,
        estimate=_number(b.estimate) if known else None,
        error=_number(b.error) if known else None,
        command=float(b.command),
        force=_number(row[a.column_F]) if _sampled(rig, row, settings.force) else None,
        reaction=_number(b.force) or 0.0,
        saturation=tuple(flag.text for flag in Saturation if int(b.saturation) & flag),
        learned=dict(_learned(rig, row, i, settings)),
        late_command=_number(b.late_command) or 0.0,
        late_force=_number(b.late_force) or 0.0,
    )


def _sampled(rig: Rig, row: Floats, channel: str) -> bool:
    """Whether the channel has had a sample."""
    return math.isfinite(row[rig.layout.column(f"stale.{channel}")])


def _learned(rig: Rig, row: Floats, i: int, settings: ActuatorSettings) -> Iterator[tuple[str, LearnedValue]]:
    """Each uncertain value as it is tracked; the bridge knows it in standard deviations from the stated one."""
    b, work = actuator_state(rig.plan, row, i), np.zeros(scratch_cells(len(settings.uncertainty)))
    memory, why = memory_of(rig.plan, row, work, i), _why_held(settings, b)
    take_covariance(rig.plan, row, i, memory)
    model, spread = settings.model(), settings.spread()
    for k, name in enumerate(settings.uncertainty, STATES + 1):
        deviations = float(memory.estimate[k]) if b.known and math.isfinite(memory.estimate[k]) else 0.0
        variance = float(memory.covariance[k, k])
        known = not why and 0.0 < variance < KNOWN**2
        stated, width, at_bound = spread_of(model, name), spread[name], abs(deviations) >= MAX_DEVIATIONS - AT_BOUND
        yield (
            name,
            LearnedValue(
                value=stated + deviations * width,
                configured=stated,
                minimum=stated - MAX_DEVIATIONS * width,
                maximum=stated + MAX_DEVIATIONS * width,
                unit=_unit(name),
                deviation=math.sqrt(variance) * width if 0.0 < variance < math.inf and b.known else None,
                known=known,
                at_bound=at_bound,
                state=why or ("at a bound" if at_bound else "tracked" if known else "not excited yet"),
            ),
        )


def _why_held(settings: ActuatorSettings, b: ActuatorState) -> str:
    """Why the uncertain values are not tracked at present, as a text; empty if they are."""
    strategy = DisplacementStrategy(int(b.strategy))
    if not settings.bridge.learn:
        return "off: learn = false"
    if not strategy.tracks:
        return f"off: strategy {strategy.name}"
    return "" if b.known else "held: no samples yet"


def _unit(name: str) -> str:
    """The unit of a value of servo or specimen; frequencies in Hz, as they are stated."""
    part = name.removeprefix("specimen_")
    field = (ServoSettings if part == name else SpecimenSettings).model_fields[part]
    unit = next((each for each in field.metadata if isinstance(each, Unit)), None)
    return "" if unit is None else "Hz" if unit.example.endswith("Hz") else unit.si


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
