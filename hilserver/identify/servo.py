"""The flow servo of an identified valve: its settings, with their margins at several pressure drops."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from hilserver.components.shared.edges import Leakage
from hilserver.identify.findings import IdentifiedValue, leakage_point
from hilserver.identify.identification import Identified
from hilserver.identify.recorded import Recording
from hilserver.margins.flow_servo import flow_plant, in_rig_file, margins_in_words
from hilserver.margins.servo_loop import FlowPlant, Pid, ServoLoop, tuned
from hilserver.report.document import Grid
from hilserver.rig.settings import ValveSettings
from hilserver.units import shown_value

SHARES_OF_DROP = (1.0, 0.25, 0.04)
"""Pressure drops at which margins are stated; the flow gain is 1, 1/2 and 1/5 of the largest."""
NO_SENSOR = (
    "No settings for the strategy flow_servo: this valve has no flow sensor (valves.{}.flow), and without one it can't "
    "be used."
)


@dataclass(frozen=True)
class ServoTuning:
    """The settings for a valve, and the loop at each of these pressure drops over one edge (Pa), the largest first."""

    pid: Pid
    loops: dict[float, ServoLoop]

    @property
    def drop(self) -> float:
        """The largest pressure drop, for which the servo is tuned, Pa."""
        return max(self.loops)


def tuned_servo(found: Identified, findings: Iterable[IdentifiedValue], recording: Recording) -> ServoTuning | None:
    """The servo for the highest recorded supply pressure over one edge; None without a flow sensor.

    ``findings``: those of the valve.
    """
    e = found.experiment
    if e.flow is None:
        return None
    supply, tank = (recording.channels[name][recording.known] for name in (e.settings.supply, e.settings.tank))
    drop = float(np.max(supply) - np.min(tank))
    settings = identified_settings(found, findings)

    def plant(drop: float) -> FlowPlant:
        p = flow_plant(e.rig, settings, drop)
        gain, late = found.values.get("flow_gain", 1.0), found.values.get("flow_delay", 0.0)
        late += found.lateness.value if found.lateness else 0.0  # no longer in the delay of the valve
        return replace(p, gain=gain * p.gain, dead_time=max(p.dead_time + late, 0.0))

    pid = tuned(plant(drop))
    return ServoTuning(pid, {share * drop: ServoLoop(plant(share * drop), pid) for share in SHARES_OF_DROP})


def identified_settings(found: Identified, findings: Iterable[IdentifiedValue]) -> ValveSettings:
    """The valve with its identified values; configured ones where the recording does not identify them."""
    v, values = found.experiment.settings, {f.key: f.estimate.value for f in findings}
    to_tank, leak = v.nominal_flow_AT, leakage_point(found)
    known = Leakage.model_construct(flow=values["leakage"], drop=leak.drop, per=leak.per, gone_at=values["gone_at"])
    return v.model_copy(
        update={
            "nominal_flow": v.nominal_flow.model_copy(update={"flow": values["nominal_flow"]}),
            "nominal_flow_to_tank": to_tank.model_copy(update={"flow": values["nominal_flow_to_tank"]}),
            "leakage": known,
            "overlap": max(values.get("overlap", 0.0), 0.0),
            "delay": max(values["delay"], 0.0),
            "f45": values.get("f45"),
            "f90": values.get("f90"),
            "damping": values.get("damping", v.damping),
        }
    )


def servo_lines(name: str, servo: ServoTuning | None) -> list[str]:
    """The settings of a valve's servo as lines of the rig file."""
    if servo is None:
        return [f"# {NO_SENSOR.format(name)}"]
    margins = [f"# {key}: {value}" for key, value in margins_in_words(servo.loops[servo.drop]).items()]
    settings = [f"{key} = {value}" for key, value in in_rig_file(servo.pid).items()]
    tuned_for = f"# Strategy flow_servo, tuned for {shown_value(servo.drop, 'Pa', 3)} across one edge:"
    return ["", tuned_for, *margins, f"[valves.{name}.bridge]", *settings]


def servo_table(servo: ServoTuning) -> Grid:
    """Margins at each pressure drop."""
    columns = [margins_in_words(loop) for loop in servo.loops.values()]
    heads = [f"{shown_value(drop, 'Pa', 3)} across one edge" for drop in servo.loops]
    rows = [(name, *(column[name] for column in columns)) for name in columns[0]]
    return Grid(("", *heads), tuple(rows))
