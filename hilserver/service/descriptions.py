"""The descriptions of a rig's channels, inputs, valves and actuators that the server publishes."""

from __future__ import annotations

from hilserver.protocol.driven import ActuatorDescription, ValveDescription
from hilserver.protocol.published import ChannelDescription, InputDescription
from hilserver.rig.rig import Rig
from hilserver.service.actuator_status import parameter_columns
from hilserver.service.strategies import offered_strategies
from hilserver.service.telemetry_samples import ACTUATOR_CHANNELS, LOOP_CHANNELS, VALVE_CHANNELS
from hilserver.tick.hybrid.displacement import AVAILABLE_IN_RIGS
from hilserver.tick.row import RowHeader


def channel_descriptions(rig: Rig) -> dict[str, ChannelDescription]:
    """Every channel of telemetry with its unit."""
    settings = rig.settings
    found = {
        name: ChannelDescription(unit=s.unit, kind="measured" if s.device else "configured", description=s.description)
        for name, s in settings.channels.items()
    }
    found |= {f"input.{name}": ChannelDescription(unit="", kind="command") for name in settings.inputs}
    for valve in settings.valves:
        found |= {
            f"valve.{valve}.{name}": ChannelDescription(unit=field.unit, kind="bridge", description=field.description)
            for name, field in VALVE_CHANNELS.items()
        }
    found |= _actuator_channels(rig)
    found |= {
        f"device.{name}.errors": ChannelDescription(
            unit="", kind="state", description="failures counted since the start"
        )
        for name in settings.devices
    }
    found |= {
        name: ChannelDescription(unit=unit, kind="state", description=text)
        for name, (unit, text) in LOOP_CHANNELS.items()
    }
    found["mode"] = ChannelDescription(unit="", kind="state", description=RowHeader.fields()["mode"].description)
    found["tick"] = ChannelDescription(unit="", kind="state", description="tick of the sample")
    return found


def _actuator_channels(rig: Rig) -> dict[str, ChannelDescription]:
    """The values of actuators whose position is controlled, and the parameters that their bridges track."""
    found = {
        f"actuator.{actuator}.{name}": ChannelDescription(unit=field.unit, kind="bridge", description=field.description)
        for actuator in rig.settings.actuators
        for name, field in ACTUATOR_CHANNELS.items()
    }
    text = "tracked deviation from the stated value, in standard deviations of its uncertainty"
    tracked = parameter_columns(rig)
    return found | {name: ChannelDescription(unit="", kind="bridge", description=text) for name in tracked}


def input_descriptions(rig: Rig) -> dict[str, InputDescription]:
    """Operator inputs and their ranges."""
    return {
        name: InputDescription(
            unit="",
            minimum=s.range[0],
            maximum=s.range[1],
            initial=s.initial,
            hold_to_run=s.hold_to_run,
            description=s.description,
        )
        for name, s in rig.settings.inputs.items()
    }


def valve_descriptions(rig: Rig) -> dict[str, ValveDescription]:
    """Real valves and the strategies that can drive them."""
    return {
        name: ValveDescription(
            strategies=offered_strategies(rig, name), jog_limit=s.bridge.jog_limit, description=s.description
        )
        for name, s in rig.settings.valves.items()
    }


def actuator_descriptions(rig: Rig) -> dict[str, ActuatorDescription]:
    """Actuators whose position is controlled, and the strategies that can drive them."""
    return {
        name: ActuatorDescription(strategies=AVAILABLE_IN_RIGS, jog_speed=s.bridge.jog_speed, description=s.description)
        for name, s in rig.settings.actuators.items()
    }
