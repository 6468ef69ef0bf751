"""Parts from which the circuits of `port_circuits` are made: supply, directional valve, ways to a port."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from port_sizes import RETURN, SUPPLY, Size, Table


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


def supply(s: Size) -> Table:
    """A pump at constant pressure with its volume and relief valve."""
    return {
        "tank": part("tank", {"T": "tank"}, pressure=RETURN),
        "pump": part(
            "pressure_compensated_pump",
            {"P": "supply", "T": "tank"},
            max_flow=s.flow(2.0),
            set_pressure=f"{SUPPLY:g} bar",
        ),
        "supply": part("volume", {"P": "supply"}, volume=s.volume(400)),
        "relief": relief("supply", s, SUPPLY + 15.0),
    }


def relief(node: str, s: Size, opening: float, kind: str = "relief_valve", **values: Any) -> Table:
    """A relief valve from a node to the tank."""
    override = [["5 bar", s.flow(0.5)], ["15 bar", s.flow(1.5)]]
    return part(kind, {"P": node, "T": "tank"}, opening_pressure=f"{opening:g} bar", override=override, **values)


def main_valve(s: Size, a: str, b: str, kind: str = "proportional_valve_4_3", **values: Any) -> Table:
    """The directional valve that the joystick commands."""
    dynamics = {"proportional_valve_4_3": {"f45": "30 Hz"}, "servo_valve": {"f90": "60 Hz"}}
    given = {"nominal_flow": s.edge(0.66), **dynamics.get(kind, {"time_constant": "15 ms"}), **values}
    return part(kind, {"P": "supply", "T": "tank", "A": a, "B": b}, command="joystick", **given)


def signals() -> Table:
    """``up`` and ``down``: the joystick's positive and negative part."""
    return {
        "up": {"type": "limiter", "input": "joystick", "signal": "up", "lower": 0.0, "upper": 1.0},
        "turned": {"type": "gain", "input": "joystick", "signal": "turned", "gain": -1.0},
        "down": {"type": "limiter", "input": "turned", "signal": "down", "lower": 0.0, "upper": 1.0},
    }


def two_way(s: Size, start: str, end: str, command: str, share: float = 0.66) -> Table:
    """A 2/2 valve that a signal opens."""
    return part(
        "directional_valve_2_2",
        {"P": start, "A": end},
        command=command,
        nominal_flow=s.at(share, 35),
        time_constant="15 ms",
    )


def both_ways(s: Size, b_up: bool = True, b_down: bool = True) -> Table:
    """Signals, a valve that lowers the load from port A, and valves that relieve port B and fill it."""
    found = {**signals(), "lower": two_way(s, A, "tank", "down")}
    if b_up:
        found["leave_B"] = two_way(s, B, "tank", "up")
    if b_down:
        found["fill_B"] = two_way(s, "supply", B, "down")
    return found


def directly(**values: Any) -> Builder:
    """A 4/3 valve at both ports."""
    return lambda s: Plain({**supply(s), "main": main_valve(s, A, B, **values)}, {})


def in_line(make: Callable[[Size], Table], ms: float = 100.0, back: bool = False, **valve: Any) -> Builder:
    """A component between the line of the valve, with a volume of ``ms`` of full flow, and port A.

    ``back``: the oil leaves through a valve of its own, since the component lets none back.
    """

    def build(s: Size) -> Plain:
        components = {
            **supply(s),
            "main": main_valve(s, LINE, B, **valve),
            "line": part("volume", {"P": LINE}, volume=s.volume(ms)),
            "part": make(s),
        }
        if back:
            components |= {**signals(), "lower": two_way(s, A, "tank", "down")}
        return Plain(components, {LINE: 46.0})

    return build


def at_port(make: Callable[[Size], Table]) -> Builder:
    """A component at port A beside a 4/3 valve at both ports."""
    return lambda s: Plain({**supply(s), "main": main_valve(s, A, B), **make(s)}, {})


def pump_at_port(make: Callable[[Size], Table]) -> Builder:
    """A pump whose drive is the joystick's positive part, at port A; valves for everything else."""
    return lambda s: Plain({**supply(s), **both_ways(s), "part": make(s)}, {})


IN_LINE = {"A": LINE, "B": A}


def line_of(kind: str, values: Callable[[Size], Table], ports: Mapping[str, str] | None = None) -> Any:
    """A component between the line and port A (or these ports), with values for a size."""
    return lambda s: part(kind, ports or IN_LINE, **values(s))
