"""The outputs of a rig in the order of its devices, and the limits on the age of what the devices have confirmed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hilserver.rig.actuator_settings import ActuatorSettings
from hilserver.rig.settings import OutputSettings, RigSettings, ValveSettings
from hilserver.tick.codes import Action

PERIODS = 2.0
"""Periods of a slow device that a confirmation takes longer than a sample: the command waits for one cycle."""
ACTIONS = {"warn": Action.WARN, "ramp": Action.RAMP, "trip": Action.TRIP}
SUFFIX = ".unconfirmed"
"""End of the name of an output's limit."""


@dataclass(frozen=True)
class DrivenOutput:
    """An output in use; ``name`` is ``valve.<name>``, ``actuator.<name>`` or ``output.<name>``."""

    name: str
    device: str
    output: str
    max_age: float | None
    """Longest time until the device confirms a command, s; None: it is not monitored."""
    action: Action

    @property
    def column(self) -> str:
        """The column of the row with its raw value."""
        return self.name if self.name.startswith("output.") else f"{self.name}.output"

    @property
    def limit(self) -> str:
        """The name of its limit."""
        return f"{self.name}{SUFFIX}"


def driven_outputs(settings: RigSettings, rates: Mapping[str, float | None]) -> Iterator[DrivenOutput]:
    """All outputs in use: the devices in turn, of each the servo valves and the actuators first.

    By default a confirmation may take as long as a sample of the same device may be old, and two periods.

    ``rates``: the devices outside of this program, with their rates (1/s) if they are slow; the outputs of others are
    only monitored where the rig file says so.
    """
    users: dict[str, ValveSettings | ActuatorSettings | OutputSettings] = {}
    users |= {f"valve.{name}": v for name, v in settings.valves.items()}
    users |= {f"actuator.{name}": a for name, a in settings.actuators.items()}
    users |= {f"output.{name}": o for name, o in settings.outputs.items()}
    for device in settings.devices:
        usual = None
        if device in rates:
            ages = [settings.oldest_sample(name) for name, c in settings.channels.items() if c.device == device]
            rate = rates[device]
            usual = max(ages, default=settings.loop.max_age) + (PERIODS / rate if rate is not None else 0.0)
        for name, user in users.items():
            if user.device == device:
                max_age = user.max_age if user.max_age is not None else usual
                yield DrivenOutput(name, device, user.output, max_age, ACTIONS[user.unconfirmed])
