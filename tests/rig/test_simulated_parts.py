"""Notes on a rig file that does not describe the simulated rig that it drives."""

from __future__ import annotations

from typing import Any

import pytest
from lift_bench import lift
from rig_bench import merged

from hilserver.rig.plausibility import implausible


def noted(changes: dict[str, Any]) -> list[str]:
    """The notes on the lift rig with changes of its rig file."""
    return list(implausible(lift({"rig": changes})))


@pytest.mark.parametrize(
    ("sensor", "text"),
    [
        ({"value": ["0 bar", "800 bar"]}, "devices.rig.sensors.x.value: is in bar, but rod.x is in mm."),
        ({"value": ["0 mm", "500 mm"]}, "channels.x.scale: reads 500 mm of its simulated sensor as 1000 mm."),
        ({"raw": [0.0, 5.0]}, "channels.x.scale: reads 1000 mm of its simulated sensor as 500 mm."),
        ({"value": ["0 mm", "1010 mm"]}, None),
    ],
)
def test_a_simulated_sensor_and_its_channel(sensor: dict[str, Any], text: str | None) -> None:
    found = list(implausible(lift({"rig": {"devices": {"rig": {"sensors": {"x": sensor}}}}})))
    assert found == ([text] if text else [])


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (
            "bore",
            "63 mm",
            "cylinders.lift.bore: the area at port A is 31.17 cm², but the simulated cylinder has 19.63 cm².",
        ),
        (
            "rod_diameter",
            "36 mm",
            "cylinders.lift.rod_diameter: the area at port B is 9.456 cm², but the simulated cylinder has 12.57 cm².",
        ),
        ("stroke", "500 mm", "cylinders.lift.stroke: 500 mm, but the simulated cylinder has 1000 mm."),
        ("mass", "100 kg", "cylinders.lift.mass: 100 kg, but the simulated cylinder has 400 kg."),
        ("dead_volume_A", "0.1 l", "cylinders.lift.dead_volume_A: 0.1 l, but the simulated cylinder has 0.4 l."),
        ("dead_volume_B", "1 l", "cylinders.lift.dead_volume_B: 1 l, but the simulated cylinder has 0.4 l."),
        ("bore", "51 mm", None),
        ("mass", "610 kg", None),
        ("dead_volume_A", "0.6 l", None),
    ],
)
def test_a_cylinder_that_is_another_one(key: str, value: str, text: str | None) -> None:
    """Dimensions are on the drawing, masses and volumes are estimated."""
    assert noted({"cylinders": {"lift": {key: value}}}) == ([text] if text else [])


def test_without_port_B_the_rod_does_not_matter() -> None:
    cylinder = {"port_B": None, "rod_diameter": "0 mm"}
    assert noted({"cylinders": {"lift": cylinder}, "valves": {"B": None}}) == []


def test_a_cylinder_with_two_rods_is_stated_by_its_area() -> None:
    """As the page on rig files says: 80/45 mm with a rod on both sides is 66.1 mm without one."""
    double = {"type": "double_rod_cylinder", "bore": "80 mm", "rod_diameter": "45 mm"}
    machine = {"devices": {"rig": {"machine": {"components": {"cylinder": double}}}}}
    stated = {"rig": {"cylinders": {"lift": {"bore": "66.1 mm", "rod_diameter": "0 mm"}}}}
    assert list(implausible(lift(merged(machine, stated)))) == []


def test_parallel_cylinders_have_the_sum_of_their_areas() -> None:
    one = lift().sources["devices"]["rig"]["machine"]["components"]["cylinder"]
    machine = {"devices": {"rig": {"machine": {"components": {"second": one}}}}}
    stated = {"rig": {"cylinders": {"lift": {"bore": "70.71 mm", "rod_diameter": "42.43 mm"}}}}
    assert list(implausible(lift(merged(machine, stated)))) == []
    (text,) = implausible(lift(machine))
    assert text.startswith("cylinders.lift.bore: the area at port A is 19.63 cm², but the simulated cylinder has 39.27")


def test_friction_at_the_rod_does_not_hide_a_wrong_mass() -> None:
    friction = {"type": "friction", "ports": {"rod": "rod"}, "static": "200 N"}
    machine = {"devices": {"rig": {"machine": {"components": {"seals": friction}}}}}
    (text,) = implausible(lift(merged(machine, {"rig": {"cylinders": {"lift": {"mass": "4 t"}}}})))
    assert text == "cylinders.lift.mass: 4000 kg, but the simulated cylinder has 400 kg."


def test_volumes_at_the_port_of_a_cylinder_belong_to_its_dead_volume() -> None:
    hose = {"type": "volume", "ports": {"P": "A"}, "volume": "0.8 l"}
    machine = {"devices": {"rig": {"machine": {"components": {"hose": hose}}}}}
    stated = {"rig": {"cylinders": {"lift": {"dead_volume_A": "1.2 l"}}}}
    assert list(implausible(lift(merged(machine, stated)))) == []
    (text,) = implausible(lift(machine))
    assert text == "cylinders.lift.dead_volume_A: 0.4 l, but the simulated cylinder has 1.2 l."


def test_a_cylinder_with_its_ports_exchanged() -> None:
    (text,) = noted({"cylinders": {"lift": {"port_A": "B", "port_B": "A"}}})
    assert text == "cylinders.lift.port_A: port B is the rod side of the simulated cylinder."


def test_pressure_sensors_that_are_exchanged() -> None:
    assert noted({"ports": {"A": "p_B", "B": "p_A"}}) == [
        "ports.A: its channel p_B measures at node B of the simulated machine, not at A.",
        "ports.B: its channel p_A measures at node A of the simulated machine, not at B.",
    ]


def test_a_valve_of_the_wrong_polarity() -> None:
    (text,) = noted({"valves": {"A": {"polarity": -1}}})
    assert text == (
        "valves.A.polarity: a positive command lets oil out of port A of the simulated machine: 1 would be right, or "
        "reverse the order of raw."
    )
    assert noted({"valves": {"A": {"polarity": -1, "raw": [10, -10]}}}) == []


@pytest.mark.parametrize("raw", [[-5, 5], [0, 10], [-10, 5]])
def test_an_output_with_another_scale(raw: list[float]) -> None:
    assert noted({"valves": {"A": {"raw": raw}}}) == [
        f"valves.A.raw: {raw[0]} … {raw[1]}, but the simulated actuator valve_A has -10 … 10."
    ]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"nominal_flow": {"flow": "38 l/min"}},
            "valves.A.nominal_flow: 38 l/min, but the simulated valve_A has 60 l/min.",
        ),
        ({"nominal_flow": {"drop": "70 bar", "per": "loop"}}, None),  # the same point, over both edges
        ({"nominal_flow": {"flow": "52 l/min"}, "f90": "70 Hz"}, None),
        ({"f90": "160 Hz"}, "valves.A.f90: 160 Hz, but the simulated valve_A has 80 Hz."),
    ],
)
def test_a_valve_with_another_datasheet(changes: dict[str, Any], text: str | None) -> None:
    assert noted({"valves": {"A": changes}}) == ([text] if text else [])


def test_a_valve_behind_a_line_is_at_no_port() -> None:
    """Where it acts is not known from the drawing of the drive: no note."""
    orifice = {"type": "orifice", "ports": {"A": "A", "B": "A1"}, "nominal_flow": {"flow": "60 l/min", "drop": "5 bar"}}
    line = {"type": "volume", "ports": {"P": "A1"}, "volume": "0.1 l"}
    valve = {"ports": {"P": "S", "T": "T", "A": "A1", "B": "plug_A"}}
    drive = {"components": {"throat": orifice, "line": line, "valve_A": valve}}
    assert list(implausible(lift({"devices": {"rig": {"drive": drive}}}))) == []


def test_a_sensor_of_a_signal() -> None:
    sensor = {"type": "position_sensor", "ports": {"rod": "rod"}, "signal": "measured"}
    machine = {"devices": {"rig": {"machine": {"components": {"scale": sensor}}}}}
    rig = {"rig": {"devices": {"rig": {"sensors": {"x": {"of": "measured"}}}}}}
    assert list(implausible(lift(merged(machine, rig)))) == []


@pytest.mark.parametrize(
    ("channel", "text"),
    [
        ({"tare": "50 bar"}, "channels.p_A.scale: reads 0 bar of its simulated sensor as -50 bar."),
        (
            {"scale": {"raw": [0, 5, 10], "value": ["0 bar", "50 bar", "250 bar"]}},
            "channels.p_A.scale: reads 125 bar of its simulated sensor as 50 bar.",
        ),
        ({"delay": "9 ms"}, "channels.p_A.delay: 9 ms, but its simulated sensor is 1 ms late."),
        ({"tare": "2 bar", "delay": "2 ms"}, None),
    ],
)
def test_a_channel_that_reads_something_else(channel: dict[str, Any], text: str | None) -> None:
    """With a large tare, p_A_high can't be violated any more: that is another note."""
    found = [note for note in noted({"channels": {"p_A": channel}}) if note.startswith("channels.")]
    assert found == ([text] if text else [])


def test_valves_whose_outputs_are_exchanged() -> None:
    found = noted({"valves": {"A": {"output": "valve_B"}, "B": {"output": "valve_A"}}})
    assert found == [
        "valves.A.output: commands valve_B of the simulated drive, which is at port B, not at A.",
        "valves.B.output: commands valve_A of the simulated drive, which is at port A, not at B.",
    ]


@pytest.mark.parametrize(("action", "count"), [("trip", 1), ("ramp", 1), ("warn", 0)])
def test_a_limit_that_is_violated_from_the_start(action: str, count: int) -> None:
    machine = {"devices": {"rig": {"machine": {"nodes": {"A": {"pressure": "60 bar"}}}}}}
    limit = {"rig": {"limits": {"low": {"channel": "p_A", "max": "50 bar", "action": action}}}}
    found = list(implausible(lift(merged(machine, limit))))
    assert found == ["limits.low.max: 50 bar is violated from the start: A begins at 60 bar."] * count


def test_a_limit_of_an_absolute_pressure_that_is_violated_from_the_start() -> None:
    changes = {
        "devices": {"rig": {"machine": {"nodes": {"A": {"pressure": "60 bar"}}}}},
        "rig": {
            "channels": {"p_A": {"absolute": True}},
            "limits": {"low": {"channel": "p_A", "max": "50 bar", "action": "trip"}},
        },
    }
    (text,) = (note for note in implausible(lift(changes)) if note.startswith("limits.low"))
    start = "A begins at 61.01 bar absolute"
    assert text == f"limits.low.max: 50 bar absolute is violated from the start: {start}."
