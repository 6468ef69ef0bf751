"""Bridged rigs for everything that can stand at a port: plain circuits with one component there, on three rigs.

A virtual supply, a directional valve with the input ``joystick``, the component in the line to port A (or in both
lines), and a return line at 3 bar. The machine is a cylinder under a constant load of 40 bar on its piston, with a mass
from which its hydraulic natural frequency follows: 30 Hz (light) or 5 Hz (heavy). One real servo valve drives both
ports (as a 4/3 valve, on a supply like the virtual one), or two drive one each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import pi
from pathlib import Path
from typing import Any

from rig_bench import merged

from hilserver.circuit.library import standard_library
from hilserver.rig.build import Rig, assemble
from hilserver.toml import read_toml

CONFIG = Path(__file__).parents[2] / "config"
Table = dict[str, Any]

BULK = 1.5e9  # Pa, of mineral oil without air
LOAD = 40e5  # Pa on the piston area: the constant part of the load
START = 0.4  # share of the stroke at which the work cycle begins
BACK = 10.0  # bar in chamber B at the start
RETURN = "3 bar"  # virtual return line: the real valve needs 2 bar for the flow from the rod side
SUPPLY = 140.0  # bar, virtual
FLUID = {"bulk_modulus": "1.5e9 Pa", "density": "870 kg/m^3", "air_fraction": 0.0}


@dataclass(frozen=True)
class Size:
    """A rig: cylinder (mm; l at either port, with hoses), speed at full virtual flow (m/s), real valve, sensors.

    ``f90`` in Hz; ``delay`` of the valve and ``sensors``, those of the sensors, in ms.
    """

    name: str
    bore: float
    rod: float
    stroke: float
    dead: float
    speed: float
    f90: float
    delay: float
    sensors: float

    @property
    def areas(self) -> tuple[float, float]:
        """Piston and annulus area, m²."""
        return 0.25e-6 * pi * self.bore**2, 0.25e-6 * pi * (self.bore**2 - self.rod**2)

    @property
    def full(self) -> float:
        """Virtual flow into A at full speed, l/min."""
        return 6e4 * self.speed * self.areas[0]

    @property
    def stiffness(self) -> float:
        """Of both closed chambers at the start of the work cycle, N/m."""
        a, b = self.areas
        dead, x = 1e-3 * self.dead, 1e-3 * self.stroke * START
        return BULK * (a * a / (dead + a * x) + b * b / (dead + b * (1e-3 * self.stroke - x)))

    def mass(self, frequency: float) -> float:
        """Mass whose natural frequency on the closed chambers is this, kg."""
        return self.stiffness / (2.0 * pi * frequency) ** 2

    def flow(self, share: float) -> str:
        """A share of the full virtual flow."""
        return f"{share * self.full:.6g} l/min"

    def at(self, share: float, drop: float) -> Table:
        """A point of a datasheet: this share of the full virtual flow at a drop in bar."""
        return {"flow": self.flow(share), "drop": f"{drop:g} bar"}

    def edge(self, share: float, drop: float = 35.0) -> Table:
        """The same of one edge of a valve."""
        return {**self.at(share, drop), "per": "edge"}

    def volume(self, share: float) -> str:
        """A volume: ``share`` ms of the full virtual flow."""
        return f"{share * self.full / 6e4:.6g} l"


SIZES = {
    "small": Size("small", 32, 18, 200, 0.2, 0.10, 100.0, 1.0, 1.0),
    "middle": Size("middle", 63, 36, 800, 0.3, 0.15, 80.0, 2.0, 1.0),
    "large": Size("large", 125, 80, 1500, 1.0, 0.20, 60.0, 3.0, 1.0),
}
LOADS = {"light": 30.0, "heavy": 5.0}
"""Hydraulic natural frequency, Hz."""
CYCLES: dict[str, tuple[tuple[float, float], ...]] = {
    "light": (
        *((0, 0), (0.3, 0), (0.32, 0.7), (0.9, 0.7), (0.92, 0), (1.6, 0)),
        *((2.0, -0.6), (2.3, -0.6), (2.6, 0), (3.2, 0)),
    ),
    "heavy": (
        *((0, 0), (0.3, 0), (0.7, 0.7), (1.0, 0.7), (1.4, 0), (2.2, 0)),
        *((2.6, -0.6), (2.8, -0.6), (3.2, 0), (4.0, 0)),
    ),
}
"""Time (s) and joystick: up (a step, or a ramp of two natural periods), standstill, down on ramps, standstill."""
STANDSTILLS = {"light": ((1.3, 1.6), (2.9, 3.2)), "heavy": ((1.9, 2.2), (3.7, 4.0))}
"""s, in which the machine should stand still."""


# --- circuits ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plain:
    """Parts of a circuit: components, pressures of nodes at the start in bar."""

    components: Table
    nodes: Mapping[str, float]


Builder = Callable[[Size], Plain]
A, B = "rig.A", "rig.B"
LINE = "line_A"


def part(kind: str, ports: Mapping[str, str], **values: Any) -> Table:
    """A component."""
    return {"type": kind, "ports": dict(ports), **values}


def _supply(s: Size) -> Table:
    return {
        "tank": part("tank", {"T": "tank"}, pressure=RETURN),
        "pump": part(
            "pressure_compensated_pump",
            {"P": "supply", "T": "tank"},
            max_flow=s.flow(2.0),
            set_pressure=f"{SUPPLY:g} bar",
        ),
        "supply": part("volume", {"P": "supply"}, volume=s.volume(400)),
        "relief": _relief("supply", s, SUPPLY + 15.0),
    }


def _relief(node: str, s: Size, opening: float, kind: str = "relief_valve", **values: Any) -> Table:
    override = [["5 bar", s.flow(0.5)], ["15 bar", s.flow(1.5)]]
    return part(kind, {"P": node, "T": "tank"}, opening_pressure=f"{opening:g} bar", override=override, **values)


def _main(s: Size, a: str, b: str, kind: str = "proportional_valve_4_3", **values: Any) -> Table:
    dynamics = {"proportional_valve_4_3": {"f45": "30 Hz"}, "servo_valve": {"f90": "60 Hz"}}
    given = {"nominal_flow": s.edge(0.66), **dynamics.get(kind, {"time_constant": "15 ms"}), **values}
    return part(kind, {"P": "supply", "T": "tank", "A": a, "B": b}, command="joystick", **given)


def _signals() -> Table:
    """``up`` and ``down``: the joystick's positive and negative part."""
    return {
        "up": {"type": "limiter", "input": "joystick", "signal": "up", "lower": 0.0, "upper": 1.0},
        "turned": {"type": "gain", "input": "joystick", "signal": "turned", "gain": -1.0},
        "down": {"type": "limiter", "input": "turned", "signal": "down", "lower": 0.0, "upper": 1.0},
    }


def _two_way(s: Size, start: str, end: str, command: str, share: float = 0.66) -> Table:
    return part(
        "directional_valve_2_2",
        {"P": start, "A": end},
        command=command,
        nominal_flow=s.at(share, 35),
        time_constant="15 ms",
    )


def _both_ways(s: Size, b_up: bool = True, b_down: bool = True) -> Table:
    """Signals, a valve that lowers the load from port A, and valves that relieve port B and fill it."""
    found = {**_signals(), "lower": _two_way(s, A, "tank", "down")}
    if b_up:
        found["leave_B"] = _two_way(s, B, "tank", "up")
    if b_down:
        found["fill_B"] = _two_way(s, "supply", B, "down")
    return found


def directly(**values: Any) -> Builder:
    """A 4/3 valve at both ports."""
    return lambda s: Plain({**_supply(s), "main": _main(s, A, B, **values)}, {})


def in_line(make: Callable[[Size], Table], ms: float = 100.0, back: bool = False, **valve: Any) -> Builder:
    """A component between the line of the valve, with a volume of ``ms`` of full flow, and port A.

    ``back``: the oil leaves through a valve of its own, since the component lets none back.
    """

    def build(s: Size) -> Plain:
        components = {
            **_supply(s),
            "main": _main(s, LINE, B, **valve),
            "line": part("volume", {"P": LINE}, volume=s.volume(ms)),
            "part": make(s),
        }
        if back:
            components |= {**_signals(), "lower": _two_way(s, A, "tank", "down")}
        return Plain(components, {LINE: 46.0})

    return build


def at_port(make: Callable[[Size], Table]) -> Builder:
    """A component at port A beside a 4/3 valve at both ports."""
    return lambda s: Plain({**_supply(s), "main": _main(s, A, B), **make(s)}, {})


def pump_at_port(make: Callable[[Size], Table]) -> Builder:
    """A pump whose drive is the joystick's positive part, at port A; valves for everything else."""
    return lambda s: Plain({**_supply(s), **_both_ways(s), "part": make(s)}, {})


IN_LINE = {"A": LINE, "B": A}


def _line_of(kind: str, values: Callable[[Size], Table], ports: Mapping[str, str] | None = None) -> Any:
    return lambda s: part(kind, ports or IN_LINE, **values(s))


def _check(s: Size) -> Table:
    return {"nominal_flow": s.at(1.5, 5), "cracking_pressure": "0.5 bar"}


def _reverse(s: Size) -> Table:
    return {"flow": s.flow(1.5), "drop": "5 bar"}


def _counterbalance(s: Size) -> Plain:
    holding = part(
        "counterbalance_valve",
        {"C": A, "V": LINE, "X": B, "Y": "tank"},
        opening_pressure="110 bar",
        override=[["20 bar", s.flow(0.7)], ["60 bar", s.flow(2.0)]],
        pilot_ratio=1.5,
        nominal_flow=s.at(2.0, 12),
        check={**_reverse(s), "cracking_pressure": "0.5 bar"},
        settling_time="10 ms",
    )
    return in_line(lambda _: holding, nominal_flow=s.edge(0.66))(s)


def _piloted(s: Size) -> Plain:
    """A pilot-operated check valve whose pilot a 3/2 valve connects to the supply while the load goes down."""
    valve = part("pilot_operated_check_valve", {**IN_LINE, "X": "pilot"}, pilot_ratio=3.0, **_check(s))
    pilot = part(
        "directional_valve_3_2",
        {"P": "supply", "A": "pilot", "T": "tank"},
        command="down",
        nominal_flow=s.at(0.1, 5),
        time_constant="10 ms",
    )
    plain = in_line(lambda _: valve)(s)
    more = {**_signals(), "pilot": pilot, "pilot_line": part("volume", {"P": "pilot"}, volume=s.volume(10))}
    return Plain({**plain.components, **more}, {**plain.nodes, "pilot": 3.0})


def _compensated(s: Size) -> Plain:
    """A compensator whose control line is port A, with its load check; a 2/2 valve meters from it into the port."""
    compensator = part(
        "pressure_compensator",
        {"P": "supply", "A": "inlet", "X": A},
        drop="7 bar",
        nominal_flow=s.at(1.5, 5),
        control_range="3 bar",
        blocks_reverse_flow=True,
        response_time="5 ms",
    )
    inlet = part("volume", {"P": "inlet"}, volume=s.volume(50))
    meter = part(
        "directional_valve_2_2",
        {"P": "inlet", "A": A},
        command="up",
        nominal_flow=s.at(1.0, 7),
        time_constant="15 ms",
    )
    own = {"compensator": compensator, "inlet": inlet, "meter": meter}
    return Plain({**_supply(s), **_both_ways(s), **own}, {"inlet": 60.0})


def _after_compensator(s: Size) -> Plain:
    """A compensator behind the metering edge (flow sharing): it stands at the port, its control line at 80 bar."""
    compensator = part(
        "pressure_compensator",
        {"P": LINE, "A": A, "X": "control"},
        place="downstream",
        drop="7 bar",
        nominal_flow=s.at(1.5, 5),
        control_range="3 bar",
        blocks_reverse_flow=True,
        response_time="5 ms",
    )
    control = part("pressure_source", {"P": "control"}, pressure="80 bar")
    plain = in_line(lambda _: compensator, ms=50, back=True)(s)
    return Plain({**plain.components, "control": control}, {LINE: 85.0})


def _independent(s: Size) -> Plain:
    """Four 2/2 valves: independent metering."""
    return Plain({**_supply(s), **_both_ways(s), "fill_A": _two_way(s, "supply", A, "up")}, {})


def _four_two(s: Size) -> Plain:
    """An on/off 4/2 valve at both ports; 2/2 valves meter in and out."""
    reverse = part(
        "directional_valve_4_2",
        {"P": "inlet", "T": "outlet", "A": A, "B": B},
        command="raise",
        nominal_flow=s.edge(1.5, 5),
        switching={"on": "40 ms", "off": "40 ms"},
    )
    absolute = {"type": "sum", "a": "up", "b": "down", "signal": "either"}
    raising = {"type": "comparator", "input": "joystick", "signal": "raise", "on_at": 0.02, "off_at": -0.02}
    lines = {name: part("volume", {"P": name}, volume=s.volume(50)) for name in ("inlet", "outlet")}
    valves = {"in": _two_way(s, "supply", "inlet", "either"), "out": _two_way(s, "outlet", "tank", "either")}
    own = {"reverse": reverse, "either": absolute, "raising": raising, **lines, **valves}
    return Plain({**_supply(s), **_signals(), **own}, {"inlet": 10.0, "outlet": 46.0})


def _three_two(s: Size) -> Plain:
    """An on/off 3/2 valve at port A: it connects the line while the joystick is deflected, else a closed line."""
    switch = part(
        "directional_valve_3_2",
        {"P": LINE, "A": A, "T": "closed"},
        command="either",
        nominal_flow=s.at(1.5, 5),
        switching={"on": "50 ms", "off": "50 ms"},
    )
    plain = in_line(lambda _: switch)(s)
    more = {
        **_signals(),
        "either": {"type": "sum", "a": "up", "b": "down", "signal": "moving"},
        "on": {"type": "comparator", "input": "moving", "signal": "either", "on_at": 0.02, "off_at": 0.01},
        "closed": part("volume", {"P": "closed"}, volume=s.volume(20)),
    }
    return Plain({**plain.components, **more}, {**plain.nodes, "closed": 46.0})


def _load_sensing(s: Size) -> Plain:
    """A load-sensing valve at both ports and its pump."""
    components = _supply(s) | {
        "pump": part(
            "load_sensing_pump",
            {"P": "supply", "T": "tank", "LS": "LS"},
            max_flow=s.flow(2.0),
            margin="20 bar",
            max_pressure="160 bar",
            response_time="40 ms",
        ),
        "main": merged(
            _main(s, A, B, "load_sensing_valve", nominal_flow=s.edge(1.0, 18), time_constant="25 ms"),
            {"ports": {"LS": "LS"}, "ls_volume": "0.05 l"},
        ),
    }
    return Plain(components, {"supply": 23.0, "LS": 3.0})


def _relieved_return(s: Size) -> Plain:
    """A relief valve as back-pressure valve of port B, which a check valve fills from the return line."""
    fill = part("check_valve", {"A": "tank", "B": B}, nominal_flow=s.at(1.5, 1))
    a = {**_both_ways(s, False, False), "fill_A": _two_way(s, "supply", A, "up")}
    return Plain({**_supply(s), **a, "part": _relief(B, s, 15.0, settling_time="10 ms"), "fill": fill}, {})


def _held(s: Size) -> Plain:
    """A pressure source of 60 bar that holds chamber B through a wide orifice; a 4/3 valve fills A."""
    source = part("pressure_source", {"P": "held"}, pressure="60 bar")
    wide = part("orifice", {"A": "held", "B": B}, nominal_flow=s.at(2.0, 1))
    plug = part("volume", {"P": "plug"}, volume=s.volume(50))
    own = {"main": _main(s, A, "plug"), "source": source, "wide": wide, "plug": plug}
    return Plain({**_supply(s), **own}, {"plug": 10.0, "rig.B": 60.0})


def _driven_pump(s: Size, drop: float = 10.0) -> Plain:
    """A speed-controlled pump at port A, in both directions; an orifice joins port B with a preloaded return line."""
    pump = part("fixed_pump", {"P": A, "T": "tank"}, displacement=_displacement(s), speed="1500 rpm", drive="joystick")
    back = part("orifice", {"A": B, "B": "tank"}, nominal_flow=s.at(1.0, drop))
    return Plain({"tank": part("tank", {"T": "tank"}, pressure="10 bar"), "part": pump, "back": back}, {})


def _held_by_tank(s: Size) -> Plain:
    """The same with a wide orifice, so that the tank holds port B."""
    return _driven_pump(s, 2.0)


def _driven_source(s: Size) -> Plain:
    """The same with an ideal source of flow."""
    source = part("flow_source", {"P": A, "T": "tank"}, flow=s.flow(1.0), command="joystick")
    return Plain({**_driven_pump(s).components, "part": source}, {})


def _displacement(s: Size) -> str:
    """Of a machine that passes the full virtual flow at 1500 rpm."""
    return f"{1e3 * s.full / 1500:.6g} cm^3"


def _three_way_flow(s: Size) -> Plain:
    """A fixed pump whose three-way flow control valve supplies port A, the rest flowing to the tank."""
    valve = part(
        "flow_control_valve_3_way",
        {"P": "supply", "A": A, "T": "tank"},
        flow=s.flow(1.0),
        bypass_flow=s.at(1.5, 6),
        command="up",
    )
    pump = part("fixed_pump", {"P": "supply", "T": "tank"}, displacement=_displacement(s), speed="2000 rpm")
    return Plain({**_supply(s), **_both_ways(s), "pump": pump, "part": valve}, {"supply": 50.0})


def _unloaded(s: Size) -> Plain:
    """A driven pump, unloaded at 120 bar; the unloading valve's check valve stands at port A."""
    valve = part(
        "unloading_valve",
        {"P": "pump", "A": A, "T": "tank"},
        cut_out_pressure="120 bar",
        nominal_flow=s.at(1.5, 4),
        check=_reverse(s),
    )
    pump = part("fixed_pump", {"P": "pump", "T": "tank"}, displacement=_displacement(s), speed="1500 rpm", drive="up")
    line = part("volume", {"P": "pump"}, volume=s.volume(50))
    return Plain({**_supply(s), **_both_ways(s), "part": valve, "own_pump": pump, "own_line": line}, {"pump": 40.0})


def _motor(s: Size) -> Table:
    ports = {**IN_LINE, "L": "tank", "shaft": "shaft"}
    return part("hydraulic_motor", ports, displacement=_displacement(s), inertia=f"{1e-5 * s.full:.4g} kg*m^2")


def _motor_in_line(s: Size) -> Plain:
    """A hydraulic motor in series, its shaft with a small load."""
    plain = in_line(_motor)(s)
    torque = f"{0.03 * s.full:.4g} N*m"  # about 1 MPa on its displacement at 2 bar·l
    return Plain({**plain.components, "brake": part("shaft_load", {"shaft": "shaft"}, torque=torque)}, plain.nodes)


def _accumulator(s: Size, node: str) -> Table:
    return part(
        "accumulator",
        {"P": node},
        gas_volume=s.volume(400),
        precharge="35 bar",
        start_pressure="46 bar",
        nominal_flow=s.at(1.0, 3),
        fluid_volume=s.volume(10),
    )


def _behind_orifice(make: Callable[[Size, str], Table]) -> Builder:
    """A vessel behind an orifice at port A."""

    def own(s: Size) -> Table:
        return {
            "vessel": make(s, "vessel"),
            "entry": part("orifice", {"A": A, "B": "vessel"}, nominal_flow=s.at(1.0, 3)),
        }

    return lambda s: Plain({**at_port(own)(s).components}, {"vessel": 46.0})


def _hose(s: Size, node: str, ms: float = 100.0) -> Table:
    bore = (4e6 * ms * s.full / 6e4 / (pi * 2000)) ** 0.5  # mm, of a hose of 2 m with this volume
    return part("hose", {"P": node}, inner_diameter=f"{bore:.4g} mm", length="2 m", wall_coefficient="2e5 Pa^0.5")


def _hose_in_line(s: Size) -> Plain:
    """A hose between the valve and a wide orifice at the port."""
    plain = in_line(_line_of("orifice", lambda s: {"nominal_flow": s.at(2.0, 2)}))(s)
    return Plain({**plain.components, "line": _hose(s, LINE)}, plain.nodes)


def _pipe(s: Size, node: str) -> Table:
    bore, length = (_hose(s, node)[key] for key in ("inner_diameter", "length"))
    wall = 0.15 * float(bore.removesuffix(" mm"))
    return part("pipe", {"P": node}, inner_diameter=bore, length=length, wall_thickness=f"{wall:.4g} mm")


def _sensed(s: Size) -> Table:
    return {
        "shuttle": part("shuttle_valve", {"A": A, "B": B, "X": "LS"}, nominal_flow=s.at(0.1, 3)),
        "ls_line": part("volume", {"P": "LS"}, volume=s.volume(10)),
    }


def _single_acting(s: Size) -> Plain:
    """A virtual spring-loaded cylinder beside the real one."""
    bore = 0.3 * s.bore
    cylinder = part(
        "single_acting_cylinder",
        {"A": A, "rod": "virtual_rod"},
        bore=f"{bore:g} mm",
        stroke="200 mm",
        moving_mass=f"{0.002 * bore**2:.4g} kg",
        dead_volume_A=s.volume(20),
        spring_force=f"{25e5 * 0.25e-6 * pi * bore**2:.6g} N",
        spring_stiffness=f"{40e5 * 0.25e-6 * pi * bore**2 / 0.2:.6g} N/m",
    )
    return Plain(at_port(lambda _: {"second": cylinder})(s).components, {"virtual_rod": 0.5})


KINDS: dict[str, Builder] = {
    "proportional_valve_4_3": directly(),
    "servo_valve": directly(kind="servo_valve"),
    "directional_valve_4_3": directly(kind="directional_valve_4_3"),
    "directional_valve_4_2": _four_two,
    "directional_valve_3_2": _three_two,
    "directional_valve_2_2": _independent,
    "load_sensing_valve": _load_sensing,
    "check_valve": in_line(_line_of("check_valve", _check), back=True),
    "check_valve, small line": in_line(_line_of("check_valve", _check), ms=5, back=True),
    "pilot_operated_check_valve": _piloted,
    "counterbalance_valve": _counterbalance,
    "pressure_compensator": _compensated,
    "pressure_compensator, behind": _after_compensator,
    "relief_valve": at_port(lambda s: {"shock": _relief(A, s, 75.0, settling_time="10 ms")}),
    "relief_valve, return": _relieved_return,
    "static_relief_valve": at_port(lambda s: {"shock": _relief(A, s, 75.0, "static_relief_valve")}),
    "orifice": in_line(_line_of("orifice", lambda s: {"nominal_flow": s.at(1.0, 10)})),
    "laminar_restrictor": in_line(_line_of("laminar_restrictor", lambda s: {"nominal_flow": s.at(1.0, 10)})),
    "throttle_check_valve": in_line(
        _line_of(
            "throttle_check_valve",
            lambda s: {**_check(s), "throttle": s.at(0.5, 20)},
            {"A": LINE, "B": A},
        )
    ),
    "flow_sensor": in_line(
        lambda s: {**part("flow_sensor", IN_LINE, nominal_flow=s.at(1.0, 2)), "signal": "flow_in_line"}
    ),
    "volume, small": in_line(_line_of("orifice", lambda s: {"nominal_flow": s.at(2.0, 2)}), ms=30),
    "hose": _hose_in_line,
    "accumulator": at_port(lambda s: {"vessel": _accumulator(s, A)}),
    "flow_control_valve_2_way": in_line(
        _line_of("flow_control_valve_2_way", lambda s: {"flow": s.flow(0.4), "reverse_check": _reverse(s)})
    ),
    "flow_control_valve_3_way": _three_way_flow,
    "reducing_valve": in_line(
        _line_of(
            "reducing_valve",
            lambda s: {"set_pressure": "80 bar", "nominal_flow": s.at(1.5, 8), "relief_flow": s.at(0.5, 8)},
            {"P": LINE, "A": A, "T": "tank"},
        )
    ),
    "sequence_valve": in_line(
        _line_of(
            "sequence_valve",
            lambda s: {
                "opening_pressure": "60 bar",
                "override": [["5 bar", s.flow(0.5)], ["15 bar", s.flow(1.5)]],
                "nominal_flow": s.at(2.0, 8),
                "reverse_check": _reverse(s),
                "settling_time": "10 ms",
            },
            {"P": LINE, "A": A, "X": LINE, "Y": "tank"},
        )
    ),
    "shuttle_valve": at_port(_sensed),
    "unloading_valve": _unloaded,
    "fixed_pump": _driven_pump,
    "orifice, to the tank": _held_by_tank,
    "flow_source": _driven_source,
    "pressure_compensated_pump": pump_at_port(
        lambda s: part(
            "pressure_compensated_pump",
            {"P": A, "T": "tank"},
            max_flow=s.flow(1.0),
            set_pressure="140 bar",
            drive="up",
        )
    ),
    "power_limited_pump": pump_at_port(
        lambda s: part(
            "power_limited_pump",
            {"P": A, "T": "tank"},
            max_flow=s.flow(1.0),
            max_power=f"{0.07 * s.full:.4g} kW",
            drive="up",
        )
    ),
    "load_sensing_pump": pump_at_port(
        lambda s: part(
            "load_sensing_pump",
            {"P": A, "T": "tank", "LS": A},
            max_flow=s.flow(1.0),
            max_pressure="140 bar",
            drive="up",
        )
    ),
    "pressure_source": _held,
    "hydraulic_motor": _motor_in_line,
    "pressure_sensor": at_port(lambda _: {"sensor": {**part("pressure_sensor", {"P": A}), "signal": "p_at_port"}}),
    "hose, at the port": at_port(lambda s: {"vessel": _hose(s, A)}),
    "volume, at the port": at_port(lambda s: {"vessel": part("volume", {"P": A}, volume=s.volume(100))}),
    "pipe, at the port": at_port(lambda s: {"vessel": _pipe(s, A)}),
    "single_acting_cylinder, at the port": _single_acting,
}
"""What stands at port A (in "relief_valve, return", "pressure_source" and "orifice, to the tank" at port B)."""
AT_THE_NODE = tuple(kind for kind in KINDS if kind.endswith("at the port"))
"""Vessels at the measured node itself: their oil is in the reference simulation, and not in the virtual circuit."""
NOT_AT_A_PORT = {
    "tank": "prescribes the pressure that is measured there: refused when packed (behind an orifice it is a kind)",
    "cylinder": "a chamber is a vessel, as single_acting_cylinder, at the port",
    "double_rod_cylinder": "a chamber is a vessel, as single_acting_cylinder, at the port",
}
"""Component types with hydraulic ports that no circuit of the family has at a port of the machine, with the reason."""


# --- rigs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A circuit on a rig: what stands at the port, names of `SIZES` and `LOADS`, one servo valve or two."""

    kind: str
    size: str = "middle"
    load: str = "light"
    valves: int = 2

    def __str__(self) -> str:
        return f"{self.kind}-{self.size}-{self.load}-{self.valves}"

    def circuit(self) -> Table:
        """The virtual circuit."""
        plain = KINDS[self.kind](SIZES[self.size])
        nodes = {"supply": {"pressure": f"{SUPPLY - 2.0:g} bar"}} if "supply" in plain.components else {}
        nodes |= {node: _start(node, value) for node, value in plain.nodes.items() if node != B}
        solver = {"integrator": "rosenbrock", "substeps": 10}
        return {"fluid": FLUID, "solver": solver, "components": plain.components, "nodes": nodes}

    def sources(self) -> Table:
        """Rig, circuit, cycle and simulated device."""
        size = SIZES[self.size]
        points = [[f"{t:g} s", u] for t, u in CYCLES[self.load]]
        cycle = {"inputs": {"joystick": {"shape": "step", "points": points}}}
        cylinder = _cylinder(size)
        mass = size.mass(LOADS[self.load])
        gravity = LOAD * size.areas[0] / (0.99 * mass)
        back = KINDS[self.kind](size).nodes.get(B, BACK)
        start = {
            "A": {"pressure": f"{LOAD / 1e5 + back * size.areas[1] / size.areas[0]:.6g} bar"},
            "B": {"pressure": f"{back:g} bar"},
            "rod": {"position": f"{START * size.stroke:g} mm"},
        }
        load = part("load_mass", {"rod": "rod"}, mass=f"{0.99 * mass:.6g} kg", gravity=f"{gravity:.6g} m/s^2")
        moving = {
            "ports": {"A": "A", "B": "B", "rod": "rod"},
            "moving_mass": f"{0.01 * mass:.6g} kg",
            "friction": {"efficiency": 0.95, "factor": "constant"},
        }
        machine = {
            "fluid": FLUID,
            "components": {"cylinder": {"type": "cylinder", **cylinder, **moving}, "load": load},
            "nodes": start,
        }
        known = {**cylinder, "mass": f"{mass:.6g} kg", "port_A": "A", "port_B": "B", "position": "x"}
        valve = Valve(3.0 * size.full, size.f90, size.delay)
        names = {"A": ("A", "B")} if self.valves == 1 else {"A": ("A", None), "B": ("B", None)}
        bench = Stand(valve, SUPPLY if self.valves == 1 else 210.0, size.sensors, names)
        rig = bench.rig("family", {"cylinder": known}, {"x": ("rod.x", f"{size.stroke:g} mm")}, ("joystick",))
        return {"rig": rig, "circuit": self.circuit(), "cycle": cycle, "devices": {"rig": bench.device(machine)}}

    def rig(self, changes: Mapping[str, Any] | None = None) -> Rig:
        """The rig, with changes of its source tables."""
        return assemble(merged(self.sources(), changes or {}), Path(f"{self}.toml"), standard_library())


def _start(node: str, value: float) -> Table:
    """Start of a node: bar, or the share of 200 mm of a rod."""
    return {"position": f"{200 * value:g} mm"} if node.endswith("rod") else {"pressure": f"{value:g} bar"}


def closed(case: Case) -> tuple[Rig, float]:
    """A rig whose line A is filled by a source of flow with the signal ``up`` only, and the volume of that line, m³.

    What the source has delivered is in the line or has passed the component into port A: nothing else is connected.
    """
    size, sources = SIZES[case.size], case.sources()
    components = sources["circuit"]["components"]
    filled = part("flow_source", {"P": LINE, "T": "tank"}, flow=size.flow(SOURCE), command="up")
    own = {"main": filled, "leave_B": _two_way(size, B, "tank", "up")}
    leak = part("orifice", {"A": "supply", "B": "tank"}, nominal_flow=size.at(0.1, 100))
    kept = {name: value for name, value in components.items() if name != "lower"}
    sources["circuit"]["components"] = {**kept, **_signals(), **own, "leak": leak}
    line = float(components["line"]["volume"].removesuffix(" l")) * 1e-3
    return assemble(sources, Path(f"{case}.toml"), standard_library()), line


SOURCE = 0.8
"""Share of the full virtual flow that the source of `closed` passes at command 1."""
CLOSED = (
    "directional_valve_3_2",
    "check_valve",
    "check_valve, small line",
    "pilot_operated_check_valve",
    "counterbalance_valve",
    "pressure_compensator, behind",
    "orifice",
    "throttle_check_valve",
    "volume, small",
    "flow_control_valve_2_way",
    "sequence_valve",
)
"""Kinds with one component between line A and port A, without a drain."""


def _cylinder(s: Size) -> Table:
    return {
        "bore": f"{s.bore:g} mm",
        "rod_diameter": f"{s.rod:g} mm",
        "stroke": f"{s.stroke:g} mm",
        "dead_volume_A": f"{s.dead:g} l",
        "dead_volume_B": f"{s.dead:g} l",
    }


@dataclass(frozen=True)
class Valve:
    """A real servo valve: l/min over an edge at 35 bar, Hz at -90°, ms."""

    flow: float
    f90: float
    delay: float

    def datasheet(self) -> Table:
        nominal = {"flow": f"{self.flow:.6g} l/min", "drop": "35 bar", "per": "edge"}
        return {"nominal_flow": nominal, "f90": f"{self.f90:g} Hz", "damping": 0.7}


@dataclass(frozen=True)
class Stand:
    """The real side: servo valves, a supply (bar) and sensors (delay in ms).

    ``ports``: of each servo valve, by its name: its own, and that at its other edges.
    """

    valve: Valve
    supply: float
    sensors: float
    ports: Mapping[str, tuple[str, str | None]]

    def _pressures(self) -> list[str]:
        return [p for pair in self.ports.values() for p in pair if p is not None]

    def _channel(self, source: str, high: str, noise: str) -> Table:
        scale = {"raw": [0, 10], "value": [f"0 {high.split()[1]}", high]}
        return {"device": "rig", "source": source, "scale": scale, "delay": f"{self.sensors:g} ms", "noise": noise}

    def _sensor(self, of: str, high: str, noise: float) -> Table:
        value = [f"0 {high.split()[1]}", high]
        return {"of": of, "value": value, "noise": noise, "bits": 16, "delay": f"{self.sensors:g} ms"}

    def rig(
        self,
        name: str,
        cylinders: Table,
        positions: Mapping[str, tuple[str, str]],
        inputs: tuple[str, ...],
    ) -> Table:
        """The rig file: pressure sensors of 400 bar with 0.08 bar of noise, position sensors of the stroke, 16 bits."""
        pressures = {f"p_{p}": p for p in (*self._pressures(), "S", "T")}
        sensors = {c: self._sensor(p, "400 bar", 2e-4) for c, p in pressures.items()}
        sensors |= {c: self._sensor(of, high, 1e-5) for c, (of, high) in positions.items()}
        channels = {c: self._channel(c, "400 bar", "0.08 bar") for c in pressures}
        for c, (_, high) in positions.items():
            channels[c] = self._channel(c, high, f"{max(1e-5 * float(high.split()[0]), 0.001):g} mm")
        valves = {}
        for v, (port, other) in self.ports.items():
            valves[v] = {
                **self.valve.datasheet(),
                "delay": f"{self.valve.delay:g} ms",
                "port": port,
                "supply": "p_S",
                "tank": "p_T",
                "device": "rig",
                "output": f"u_{v}",
                "raw": [-10, 10],
                "slew": "400 1/s",
                "bridge": {"strategy": "feedback"},
                **({"other_port": other} if other else {}),
            }
        actuators = {
            f"u_{v}": {"to": f"u_{v}", "raw": [-10, 10], "delay": f"{self.valve.delay:g} ms"} for v in self.ports
        }
        return {
            "name": name,
            "circuit": "circuit.toml",
            "cycle": "cycle.toml",
            "loop": {"rate": "1 kHz", "max_missed": 1000, "max_age": "1 s"},
            "devices": {
                "rig": {
                    "driver": "simulated",
                    "machine": "machine.toml",
                    "drive": "drive.toml",
                    "sensors": sensors,
                    "actuators": actuators,
                }
            },
            "channels": channels,
            "ports": {p: f"p_{p}" for p in self._pressures()},
            "inputs": {i: {"range": [-1, 1]} for i in inputs},
            "limits": {
                f"{p}_high": {"channel": f"p_{p}", "max": "380 bar", "action": "trip"} for p in self._pressures()
            },
            "cylinders": cylinders,
            "valves": valves,
            "mqtt": {"embedded": True, "port": 0},
        }

    def device(self, machine: Table) -> Table:
        """Machine and drive of the simulated device."""
        components: Table = {
            "real_supply": part("pressure_source", {"P": "S"}, pressure=f"{self.supply:g} bar"),
            "real_tank": part("tank", {"T": "T"}, pressure="0.5 bar"),
        }
        for v, (port, other) in self.ports.items():
            ports = {"P": "S", "T": "T", "A": port, "B": other or f"plug_{v}"}
            components[f"real_{v}"] = part("servo_valve", ports, command=f"u_{v}", **self.valve.datasheet())
            if other is None:
                components[f"plug_{v}"] = part("volume", {"P": f"plug_{v}"}, volume="0.05 l")
        drive = {
            "fluid": machine["fluid"],
            "solver": {"integrator": "rosenbrock", "substeps": 10},
            "components": components,
        }
        return {"machine": machine, "drive": drive}


# --- the ready circuits -----------------------------------------------------------------------------------------------

WITHOUT_CYLINDER = {
    "accumulator": "its consumer is an orifice: no line of it ends at a machine",
    "actuator": "for replay of a recorded actuator; its 4/3 valve at both ports is that of lift",
}
"""Ready circuits that are not lifted onto a rig, with the reason. (`boom` is bridged with `boom_valve`'s valve.)"""
REDUCED_MASS = {"boom": {"rod": 505 / 0.604**2}, "excavator": {"boom_rod": 25e3, "arm_rod": 4.8e3, "bucket_rod": 340.0}}
"""kg at the rods of mechanisms: inertia about the pivot at the start over the squared lever arm, roughly."""
REAL_SIDE = {  # real supplies, bar, of two valves and of one (as the virtual one); nominal flow of a valve, l/min
    "verification": (210.0, 140.0, 80.0),
    "lowering": (210.0, 170.0, 40.0),
    "regenerative": (210.0, 150.0, 250.0),
    "crane": (300.0, 250.0, 150.0),
    "boom": (210.0, 150.0, 40.0),
    "excavator": (280.0, 210.0, 150.0),
}
SPEEDS = {"fast": (100.0, 1.0), "usual": (80.0, 2.0), "slow": (60.0, 3.0)}
"""Servo valves: -90° frequency, Hz, and delay, ms."""
AT_THE_MACHINE = ("cylinder", "load_mass", "end_stop")


@dataclass(frozen=True)
class Ready:
    """A ready circuit whose cylinders, loads and mechanisms are the machine.

    ``valve``: a name of `SPEEDS`. ``share``: of the load's mass.
    """

    name: str
    valve: str = "usual"
    share: float = 1.0
    valves: int = 2

    def __str__(self) -> str:
        return f"{self.name}-{self.valve}-{self.share:g}-{self.valves}"

    def sources(self) -> Table:
        """Rig, circuit, cycle and simulated device."""
        whole = read_toml(CONFIG / "circuits" / f"{self.name}.toml")
        parts = whole["components"]
        machine = {n: c for n, c in parts.items() if c["type"] in AT_THE_MACHINE}
        cylinders = {n: c for n, c in machine.items() if c["type"] == "cylinder"}
        ports = {c["ports"][side] for c in cylinders.values() for side in "AB"}
        rods = {c["ports"]["rod"] for c in cylinders.values()}
        kept = {n: self._kept(c, ports) for n, c in parts.items() if n not in machine}
        nodes = whole.get("nodes", {})
        circuit = {
            **{key: whole[key] for key in ("fluid", "solver")},
            "components": kept,
            "nodes": {n: v for n, v in nodes.items() if n not in ports | rods},
        }
        loads = {n: self._lighter(c) for n, c in machine.items()}
        plant = {
            "fluid": whole["fluid"],
            "components": loads,
            "nodes": {n: v for n, v in nodes.items() if n in ports | rods},
        }
        if "mechanisms" in whole:
            plant |= self._mechanisms(whole)
        cycle = read_toml(CONFIG / "cycles" / f"{self.name}.toml")
        known = {n: self._known(c, loads) for n, c in cylinders.items()}
        sides = [(c["ports"]["A"], c["ports"]["B"]) for c in cylinders.values()]
        driven = [pair for a, b in sides for pair in ([(a, b)] if self.valves == 1 else [(a, None), (b, None)])]
        two, one, flow = REAL_SIDE[self.name]
        supply = one if self.valves == 1 else two
        stand = Stand(Valve(flow, *SPEEDS[self.valve]), supply, 1.0, {port: (port, other) for port, other in driven})
        positions = {f"x_{n}": (f"{c['ports']['rod']}.x", c["stroke"]) for n, c in cylinders.items()}
        rig = stand.rig(self.name, known, positions, tuple(cycle["inputs"]))
        return {"rig": rig, "circuit": circuit, "cycle": cycle, "devices": {"rig": stand.device(plant)}}

    def rig(self, changes: Mapping[str, Any] | None = None) -> Rig:
        """The rig, with changes of its source tables."""
        return assemble(merged(self.sources(), changes or {}), Path(f"{self}.toml"), standard_library())

    def _kept(self, component: Table, ports: set[str]) -> Table:
        nodes = {p: f"rig.{n}" if n in ports else n for p, n in component.get("ports", {}).items()}
        kept = {**component, **({"ports": nodes} if nodes else {})}
        return {**kept, "pressure": RETURN} if component["type"] == "tank" else kept

    def _lighter(self, component: Table) -> Table:
        if component["type"] != "load_mass":
            return component
        mass = float(component["mass"].removesuffix(" kg"))
        gravity = float(component.get("gravity", "9.81 m/s^2").removesuffix(" m/s^2"))
        weight = {"mass": f"{self.share * mass:g} kg", "gravity": f"{gravity / self.share:g} m/s^2"}
        return {**component, **weight}

    def _mechanisms(self, whole: Table) -> Table:
        found = {
            n: {"definition": read_toml(CONFIG / "circuits" / m["file"]), "nodes": m["nodes"]}
            for n, m in whole["mechanisms"].items()
        }
        return {"mechanisms": found, "solver": {"mechanics_substeps": 2}}

    def _known(self, cylinder: Table, machine: Table) -> Table:
        rod = cylinder["ports"]["rod"]
        masses = [c["mass"] for c in machine.values() if c["type"] == "load_mass" and c["ports"]["rod"] == rod]
        mass = float(cylinder["moving_mass"].removesuffix(" kg")) + sum(float(m.removesuffix(" kg")) for m in masses)
        mass += REDUCED_MASS.get(self.name, {}).get(rod, 0.0)
        name = next(n for n, c in machine.items() if c is cylinder)
        keys = ("bore", "rod_diameter", "stroke", "dead_volume_A", "dead_volume_B")
        ends = {"port_A": cylinder["ports"]["A"], "port_B": cylinder["ports"]["B"], "position": f"x_{name}"}
        return {**{key: cylinder[key] for key in keys}, **ends, "mass": f"{mass:g} kg"}
