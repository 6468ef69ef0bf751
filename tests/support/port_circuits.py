"""Plain circuits, each with one component at a port of the machine.

A virtual supply, a directional valve with the input ``joystick``, the component in the line to port A (or in both
lines), and a return line at 3 bar.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi

from port_parts import (
    IN_LINE,
    LINE,
    A,
    B,
    Builder,
    Plain,
    at_port,
    both_ways,
    directly,
    in_line,
    line_of,
    main_valve,
    part,
    pump_at_port,
    relief,
    signals,
    supply,
    two_way,
)
from port_sizes import Size, Table
from rig_bench import merged


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
    more = {**signals(), "pilot": pilot, "pilot_line": part("volume", {"P": "pilot"}, volume=s.volume(10))}
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
    return Plain({**supply(s), **both_ways(s), **own}, {"inlet": 60.0})


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
    return Plain({**supply(s), **both_ways(s), "fill_A": two_way(s, "supply", A, "up")}, {})


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
    valves = {"in": two_way(s, "supply", "inlet", "either"), "out": two_way(s, "outlet", "tank", "either")}
    own = {"reverse": reverse, "either": absolute, "raising": raising, **lines, **valves}
    return Plain({**supply(s), **signals(), **own}, {"inlet": 10.0, "outlet": 46.0})


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
        **signals(),
        "either": {"type": "sum", "a": "up", "b": "down", "signal": "moving"},
        "on": {"type": "comparator", "input": "moving", "signal": "either", "on_at": 0.02, "off_at": 0.01},
        "closed": part("volume", {"P": "closed"}, volume=s.volume(20)),
    }
    return Plain({**plain.components, **more}, {**plain.nodes, "closed": 46.0})


def _load_sensing(s: Size) -> Plain:
    """A load-sensing valve at both ports and its pump."""
    components = supply(s) | {
        "pump": part(
            "load_sensing_pump",
            {"P": "supply", "T": "tank", "LS": "LS"},
            max_flow=s.flow(2.0),
            margin="20 bar",
            max_pressure="160 bar",
            response_time="40 ms",
        ),
        "main": merged(
            main_valve(s, A, B, "load_sensing_valve", nominal_flow=s.edge(1.0, 18), time_constant="25 ms"),
            {"ports": {"LS": "LS"}, "ls_volume": "0.05 l"},
        ),
    }
    return Plain(components, {"supply": 23.0, "LS": 3.0})


def _relieved_return(s: Size) -> Plain:
    """A relief valve as back-pressure valve of port B, which a check valve fills from the return line."""
    fill = part("check_valve", {"A": "tank", "B": B}, nominal_flow=s.at(1.5, 1))
    a = {**both_ways(s, False, False), "fill_A": two_way(s, "supply", A, "up")}
    return Plain({**supply(s), **a, "part": relief(B, s, 15.0, settling_time="10 ms"), "fill": fill}, {})


def _held(s: Size) -> Plain:
    """A pressure source of 60 bar that holds chamber B through a wide orifice; a 4/3 valve fills A."""
    source = part("pressure_source", {"P": "held"}, pressure="60 bar")
    wide = part("orifice", {"A": "held", "B": B}, nominal_flow=s.at(2.0, 1))
    plug = part("volume", {"P": "plug"}, volume=s.volume(50))
    own = {"main": main_valve(s, A, "plug"), "source": source, "wide": wide, "plug": plug}
    return Plain({**supply(s), **own}, {"plug": 10.0, "rig.B": 60.0})


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
    return Plain({**supply(s), **both_ways(s), "pump": pump, "part": valve}, {"supply": 50.0})


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
    return Plain({**supply(s), **both_ways(s), "part": valve, "own_pump": pump, "own_line": line}, {"pump": 40.0})


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
    plain = in_line(line_of("orifice", lambda s: {"nominal_flow": s.at(2.0, 2)}))(s)
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
    "check_valve": in_line(line_of("check_valve", _check), back=True),
    "check_valve, small line": in_line(line_of("check_valve", _check), ms=5, back=True),
    "pilot_operated_check_valve": _piloted,
    "counterbalance_valve": _counterbalance,
    "pressure_compensator": _compensated,
    "pressure_compensator, behind": _after_compensator,
    "relief_valve": at_port(lambda s: {"shock": relief(A, s, 75.0, settling_time="10 ms")}),
    "relief_valve, return": _relieved_return,
    "static_relief_valve": at_port(lambda s: {"shock": relief(A, s, 75.0, "static_relief_valve")}),
    "orifice": in_line(line_of("orifice", lambda s: {"nominal_flow": s.at(1.0, 10)})),
    "laminar_restrictor": in_line(line_of("laminar_restrictor", lambda s: {"nominal_flow": s.at(1.0, 10)})),
    "throttle_check_valve": in_line(
        line_of(
            "throttle_check_valve",
            lambda s: {**_check(s), "throttle": s.at(0.5, 20)},
            {"A": LINE, "B": A},
        )
    ),
    "flow_sensor": in_line(
        lambda s: {**part("flow_sensor", IN_LINE, nominal_flow=s.at(1.0, 2)), "signal": "flow_in_line"}
    ),
    "volume, small": in_line(line_of("orifice", lambda s: {"nominal_flow": s.at(2.0, 2)}), ms=30),
    "hose": _hose_in_line,
    "accumulator": at_port(lambda s: {"vessel": _accumulator(s, A)}),
    "flow_control_valve_2_way": in_line(
        line_of("flow_control_valve_2_way", lambda s: {"flow": s.flow(0.4), "reverse_check": _reverse(s)})
    ),
    "flow_control_valve_3_way": _three_way_flow,
    "reducing_valve": in_line(
        line_of(
            "reducing_valve",
            lambda s: {"set_pressure": "80 bar", "nominal_flow": s.at(1.5, 8), "relief_flow": s.at(0.5, 8)},
            {"P": LINE, "A": A, "T": "tank"},
        )
    ),
    "sequence_valve": in_line(
        line_of(
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
