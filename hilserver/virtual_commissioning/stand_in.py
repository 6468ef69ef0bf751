"""A simulated machine that stands in for a real one, made from the rig file's cylinders, valves and channels.

Like real valves, the valves differ slightly from the rig file: their flow is smaller and their spool slower.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hilserver.components.shared.piston import GRAVITY
from hilserver.driver import driver_named
from hilserver.errors import ConfigurationError, Problem, did_you_mean
from hilserver.rig.channels import ChannelSettings
from hilserver.rig.rig import Rig
from hilserver.rig.settings import ValveSettings
from hilserver.rig.simulated import build_plant, plant_circuit
from hilserver.simulation.machine import Machine, load_of, machine_of_actuators, rod_of, shaft_of, starts_of_ports
from hilserver.tick.plant import PlantArrays

TRUE_FLOW, TRUE_FREQUENCY = 0.98, 0.9
"""Flow and frequency of the simulated valves, of those in the rig file; the error of the delay margin's parameters."""
FIRST_ORDER = 2.0**0.5 - 1.0
"""f45/f90 of a critically damped second-order spool: its lag is 2·atan(f/f90)."""
OF_THE_ROD = 1e-3
"""Fraction of a cylinder's mass that does not belong to its load."""
PLUG = "0.05 l"
RESTRICTIONS = ("restriction_", "line_volume_")
"""Beginnings of the keys that describe the restrictions of a cylinder."""
WIDE = 1e12
"""Range of a sensor whose channel states none, SI."""


@dataclass(frozen=True)
class StandIn:
    """A simulated machine with its valves. ``plant``: its sensors read SI values, in the order of ``measured``."""

    machine: Machine
    drive: Mapping[str, Any]
    plant: PlantArrays
    measured: tuple[str, ...]


def stand_in(rig: Rig, load: float = 1.0) -> StandIn:
    """The stand-in for a rig's machine, with a multiple of its load.

    Raises ConfigurationError if the rig file does not state enough.
    """
    problems = list(_missing(rig))
    if problems:
        raise ConfigurationError(problems)
    machine, drive = _machine(rig, load), _drive(rig)
    sensors, actuators = dict(_sensors(rig)), dict(_actuators(rig))
    config = {"machine": "cylinders", "drive": "valves", "sensors": sensors, "actuators": actuators}
    settings = driver_named("simulated").Config.model_validate(config)
    names = (tuple(sensors), tuple(actuators))
    packed = plant_circuit(machine.source, drive, rig.library)
    plant = build_plant(settings, packed, names, 1.0 / rig.settings.loop.rate)
    return StandIn(machine, drive, plant, names[0])


def unrestricted(rig: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a rig without the restrictions of its cylinders: the stand-in has none."""
    cylinders = {
        name: {key: value for key, value in table.items() if not key.startswith(RESTRICTIONS)}
        for name, table in rig.get("cylinders", {}).items()
    }
    return {**rig, "cylinders": cylinders} if cylinders else dict(rig)


def assumptions(rig: Rig) -> list[str]:
    """What is assumed of the machine, in sentences."""
    found = [
        "The rig's devices are real: machine and valves are simulated from the rig file, with flow gains "
        f"{1.0 - TRUE_FLOW:.0%} smaller and spools {1.0 - TRUE_FREQUENCY:.0%} slower than stated there."
    ]
    for name, cylinder in rig.settings.cylinders.items():
        if any(cylinder.restrictions()):
            found.append(f"The restrictions between ports and piston of cylinder {name} are left out.")
        if name in unstated_loads(rig):
            weight = f"{GRAVITY * cylinder.mass / 1e3:.3g} kN"
            found.append(
                f"Cylinder {name} is loaded with the weight of its mass, {weight}, against increasing position, and in "
                f"a few cases in the other direction; simulation.loads.{name} states the force."
            )
    for name, _ in _sensors(rig):
        if rig.settings.channels[name].deviation() == 0.0:
            found.append(f"Channel {name} has no noise: it states neither noise nor the range of its sensor.")
    return found


def unstated_loads(rig: Rig) -> list[str]:
    """The cylinders for which the rig file states no load."""
    return [name for name in rig.settings.cylinders if name not in rig.settings.simulation.loads]


def _missing(rig: Rig) -> Iterator[Problem]:
    """Values that a simulation needs and the rig file does not state."""
    file, settings = str(rig.file), rig.settings
    if not settings.valves:
        yield Problem("missing: virtual commissioning needs a valve.", "valves", file)
    if not settings.hydraulic_actuators():
        text = (
            "missing: describe the cylinders ([cylinders]) or motors ([motors]) that the valves drive, so that the "
            "machine can be simulated."
        )
        yield Problem(text, "cylinders", file)
    for name, valve in settings.valves.items():
        if settings.channels[valve.supply].value is None and settings.simulation.supply_pressure is None:
            text = f'missing: state the pressure that {valve.supply} measures at valve {name}, such as "210 bar".'
            yield Problem(text, "simulation.supply_pressure", file)
            break
    for name in settings.simulation.loads:
        if name not in settings.cylinders:
            text = f'"{name}" is not a cylinder.{did_you_mean(name, settings.cylinders)}'
            yield Problem(text, f"simulation.loads.{name}", file)


def _machine(rig: Rig, load: float) -> Machine:
    """The cylinders of the rig file, each with its load as a mass with a weight, and its motors.

    A multiple of less than 0 turns the weights that the rig file does not state.
    """
    settings, fluid = rig.settings, rig.circuit.source.get("fluid", {})
    middle = {name: 0.5 * cylinder.stroke for name, cylinder in settings.cylinders.items()}
    found = machine_of_actuators(settings, rig.library, fluid, middle)
    assert found is not None
    without_torques = {load_of(name) for name in settings.motors}
    components = {name: table for name, table in found.source["components"].items() if name not in without_torques}
    for name, cylinder in settings.cylinders.items():
        stated = settings.simulation.loads.get(name)
        force = load * GRAVITY * cylinder.mass if stated is None else abs(load) * stated
        moved, own = abs(load) * cylinder.mass, OF_THE_ROD * cylinder.mass
        components[f"cylinder_{name}"] = {**components[f"cylinder_{name}"], "moving_mass": f"{own!r} kg"}
        components[load_of(name)] = {
            "type": "load_mass",
            "ports": {"rod": rod_of(name)},
            "mass": f"{max(moved - own, own)!r} kg",
            "gravity": f"{abs(force) / max(moved - own, own)!r} m/s^2",
            "direction": "90 deg" if force >= 0.0 else "-90 deg",
        }
    source = {**found.source, "components": components, "nodes": starts_of_ports(rig)}
    return Machine.read(source, rig.library, "the cylinders and motors of the rig file")


def _drive(rig: Rig) -> dict[str, Any]:
    """A supply for each channel of a supply or tank pressure, and the valves."""
    components: dict[str, Any] = {}
    for valve in rig.settings.valves.values():
        for channel in (valve.supply, valve.tank):
            components[f"source_{channel}"] = {
                "type": "tank",
                "ports": {"T": _node(channel)},
                "pressure": f"{_pressure(rig, channel)!r} Pa",
            }
    for name, valve in rig.settings.valves.items():
        other = valve.other_port or f"plug_{name}"
        components[f"valve_{name}"] = _valve(name, valve, other)
        if valve.other_port is None:
            components[other] = {"type": "volume", "ports": {"P": other}, "volume": PLUG}
    fluid = rig.circuit.source.get("fluid", {})
    solver = {"integrator": "rosenbrock", "substeps": 10}
    return {"components": components, "solver": solver, **({"fluid": fluid} if fluid else {})}


def _valve(name: str, valve: ValveSettings, other: str) -> dict[str, Any]:
    first_order = valve.f90 is None
    frequency = valve.f45 / FIRST_ORDER if valve.f45 is not None else valve.f90
    assert frequency is not None
    nominal = valve.nominal_flow
    table: dict[str, Any] = {
        "ports": {"P": _node(valve.supply), "T": _node(valve.tank), "A": valve.port, "B": other},
        "command": f"command_{name}",
        "nominal_flow": {
            "flow": f"{TRUE_FLOW * nominal.flow!r} m^3/s",
            "drop": f"{nominal.drop!r} Pa",
            "per": nominal.per,
        },
        "f90": f"{TRUE_FREQUENCY * frequency!r} Hz",
        "damping": 1.0 if first_order else valve.damping,
        "null_offset": -valve.null,
        "hysteresis": valve.hysteresis,
        **_edges(valve),
    }
    if valve.leakage is not None:
        leakage = valve.leakage
        flow, drop = f"{leakage.flow!r} m^3/s", f"{leakage.drop!r} Pa"
        table["leakage"] = {"flow": flow, "drop": drop, "per": leakage.per, "gone_at": leakage.gone_at}
    return table


def _edges(valve: ValveSettings) -> dict[str, Any]:
    """Type and opening of a valve: with a flow-signal curve it is no servo valve as the circuits know it."""
    if valve.flow_signal is None:
        return {"type": "servo_valve", "overlap": valve.overlap}
    full = TRUE_FLOW * valve.nominal_flow.flow / valve.flow_signal[-1][1]
    curve = [[signal, f"{full * flow!r} m^3/s"] for signal, flow in valve.flow_signal]
    return {"type": "directional_valve_4_3", "flow_signal": curve}


def _node(channel: str) -> str:
    """Node at which a channel of a supply or tank pressure measures."""
    return f"at {channel}"


def _pressure(rig: Rig, channel: str) -> float:
    """The assumed or fixed pressure of a supply or tank, Pa."""
    settings = rig.settings.channels[channel]
    if settings.value is not None:
        return settings.fixed()
    supplies = {valve.supply for valve in rig.settings.valves.values()}
    assumed = rig.settings.simulation.supply_pressure if channel in supplies else rig.settings.simulation.tank_pressure
    assert assumed is not None
    return assumed


def _sensors(rig: Rig) -> Iterator[tuple[str, dict[str, Any]]]:
    """A sensor for each measured channel whose quantity the stand-in has."""
    settings = rig.settings
    places = {channel: port for port, channel in settings.ports.items()}
    for name, valve in settings.valves.items():
        places |= {valve.supply: _node(valve.supply), valve.tank: _node(valve.tank)}
        places |= {valve.flow: f"valve_{name}.q_A"} if valve.flow is not None else {}
        places |= {valve.spool: f"valve_{name}.U"} if valve.spool is not None else {}
    for name, cylinder in settings.cylinders.items():
        places |= {cylinder.position: f"{rod_of(name)}.x"} if cylinder.position is not None else {}
    for name, motor in settings.motors.items():
        places |= {motor.speed: f"{shaft_of(name)}.w"} if motor.speed is not None else {}
    for name, channel in settings.channels.items():
        if channel.is_measured and name in places:
            yield name, _sensor(channel, places[name])


def _sensor(channel: ChannelSettings, place: str) -> dict[str, Any]:
    """A sensor that reads SI values: the channel's range, noise and delay."""
    low, high = channel.measuring_range() or (-WIDE, WIDE)
    ends = [f"{end!r} {channel.unit}".strip() for end in (low, high)]
    noise = channel.deviation() / (high - low)
    return {"of": place, "raw": [low, high], "value": ends, "noise": noise, "delay": f"{channel.delay!r} s"}


def _actuators(rig: Rig) -> Iterator[tuple[str, dict[str, Any]]]:
    """The command of each valve, by its name."""
    for name, valve in rig.settings.valves.items():
        closed, opened = valve.raw if valve.polarity == 1 else valve.raw[::-1]
        yield name, {"to": f"command_{name}", "raw": [closed, opened], "delay": f"{valve.delay!r} s"}
