"""Notes on settings that are probably an error, and starts outside of a stroke."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from component_bench import program
from lift_bench import lift
from rig_bench import bench_rig

from hilserver.errors import ConfigurationError
from hilserver.margins.margins import margins
from hilserver.rig.build import load_rig
from hilserver.rig.notes import notes
from hilserver.rig.plausibility import implausible

RIGS = sorted((Path(__file__).parents[2] / "config/rigs").glob("*.toml"))


@pytest.mark.parametrize("file", RIGS, ids=lambda file: file.stem)
def test_the_example_rigs_are_plausible(file: Path) -> None:
    assert list(implausible(load_rig(file))) == []


def one(changes: dict[str, Any]) -> str:
    """The one note on the small rig with changes."""
    (text,) = implausible(bench_rig(changes))
    return text


def test_two_ports_with_one_sensor() -> None:
    assert one({"ports": {"B": "p_A"}}) == (
        "ports.B: uses the same channel as ports.A (p_A): one sensor can't measure both ports."
    )


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        ({"max": "101 bar"}, "limits.high.max: 101 bar is outside the range of its sensor, 0 bar … 100 bar: "),
        ({"min": "-1 bar"}, "limits.high.min: -1 bar is outside"),
        ({"max": "100 bar", "min": "0 bar"}, None),
        ({"max_rate": "1e9 bar/s"}, None),
    ],
)
def test_a_limit_that_its_sensor_never_reaches(limit: dict[str, str], text: str | None) -> None:
    found = list(implausible(bench_rig({"limits": {"high": {"channel": "p_A", "action": "trip", **limit}}})))
    assert len(found) == (text is not None)
    assert not found or found[0].startswith(str(text))


def test_the_range_of_a_sensor_of_absolute_pressure_ends_as_on_its_label() -> None:
    channels = {"p_A": {"absolute": True}}
    limit = {"channel": "p_A", "max": "100 bar", "action": "trip"}
    assert not list(implausible(bench_rig({"channels": channels, "limits": {"high": limit}})))
    limit["max"] = "100.1 bar"
    (text,) = implausible(bench_rig({"channels": channels, "limits": {"high": limit}}))
    assert "100.1 bar absolute is outside the range of its sensor, 0 bar … 100 bar absolute: " in text


def test_supply_and_tank_exchanged() -> None:
    rig = lift({"rig": {"valves": {"A": {"supply": "p_T", "tank": "p_S"}}}})
    found = [text for text in margins(rig, program()).warnings([]) if "swapped" in text]
    assert found == ["valves.A: the supply pressure is below that of the tank: are supply and tank swapped?"]
    assert one({"valves": {"main": {"tank": "p_S"}}}) == "valves.main.supply: is the same channel as tank, p_S."


def test_another_oil_in_the_machine() -> None:
    oil = {"bulk_modulus": "9000 bar", "air_fraction": 0.01}
    parts = {name: {"fluid": oil} for name in ("machine", "drive")}
    (text,) = implausible(lift({"devices": {"rig": parts}}))
    assert text.startswith(
        "devices.rig.machine: its oil differs from that of the circuit in fluid.bulk_modulus, fluid.air"
    )


@pytest.mark.parametrize(
    ("stated", "left"),
    [
        ({"bulk_modulus": "9000 bar", "air_fraction": 0.01}, []),
        ({"bulk_modulus": "9000 bar"}, []),  # it includes the air
        ({"air_fraction": 0.01}, ["fluid.bulk_modulus"]),
    ],
)
def test_another_oil_that_the_cylinder_states(stated: dict[str, Any], left: list[str]) -> None:
    parts = {name: {"fluid": {"bulk_modulus": "9000 bar", "air_fraction": 0.01}} for name in ("machine", "drive")}
    found = list(implausible(lift({"devices": {"rig": parts}, "rig": {"cylinders": {"lift": stated}}})))
    assert len(found) == len(left)
    assert all(f"in {', '.join(left)}; the bridge" in text for text in found)


def test_a_volume_at_a_measured_port() -> None:
    hose = {"type": "volume", "ports": {"P": "rig.A"}, "volume": "1 l"}
    (text,) = implausible(lift({"circuit": {"components": {"hose": hose}}}))
    assert text.startswith("components.hose: its volume has no effect at rig.A, where the pressure is measured")


@pytest.mark.parametrize(("ends", "noted"), [([-100, 100], True), ([-1, 1], False), ([-1.05, 1.05], False)])
def test_an_input_far_beyond_full_command(ends: list[float], noted: bool) -> None:
    """Per cent instead of fractions: 1 % of the stick opens the valve completely."""
    found = list(implausible(lift({"rig": {"inputs": {"joystick": {"range": ends}}}})))
    text = "inputs.joystick.range: -100 … 100, but main_valve is fully open at a command of 1."
    assert found == ([text] if noted else [])


def test_implausible_settings_are_notes() -> None:
    rig = bench_rig({"ports": {"B": "p_A"}})
    assert set(implausible(rig)) <= set(notes(rig))


@pytest.mark.parametrize(("position", "fits"), [("1.5 m", False), ("-2 mm", False), ("1 m", True), ("-0.5 mm", True)])
def test_a_piston_begins_within_its_stroke(position: str, fits: bool) -> None:
    """1.5 m in a stroke of 1 m gave 54 800 bar without any message."""
    changes = {"devices": {"rig": {"machine": {"nodes": {"rod": {"position": position}}}}}}
    if fits:
        lift(changes)
        return
    with pytest.raises(
        ConfigurationError, match=r"nodes\.rod\.position.* is outside the stroke of cylinder, 0 mm … 1000 mm"
    ):
        lift(changes)


def test_delays_that_are_no_whole_number_of_ticks() -> None:
    """Those of inputs are rounded; those of simulated sensors and actuators are as stated."""
    device = {"sensors": {"p_A": {"delay": "0.5 ms"}}, "actuators": {"valve_A": {"delay": "1.6 ms"}}}
    inputs = {"joystick": {"delay": "2.6 ms"}, "other": {"delay": "0.2 ms"}, "third": {"delay": "3 ms"}}
    found = notes(lift({"rig": {"devices": {"rig": device}, "inputs": inputs}}))
    whole = "the delay of an input is a whole number of ticks, of 1 ms each."
    assert [text for text in found if "delay" in text] == [
        f"inputs.joystick.delay: 2.6 ms is applied as 3 ms: {whole}",
        f"inputs.other.delay: 0.2 ms is applied as 1 ms: {whole}",
    ]


@pytest.mark.parametrize(
    ("rate", "watchdog", "noted"), [(15, 50, True), (15, 140, False), (1000, 1, True), (1000, 2, False)]
)
def test_a_watchdog_that_acts_while_the_loop_runs(rate: int, watchdog: int, noted: bool) -> None:
    rig = lift({"rig": {"loop": {"rate": f"{rate} Hz"}, "devices": {"rig": {"watchdog": f"{watchdog} ms"}}}})
    found = [text for text in notes(rig) if "watchdog" in text]
    assert len(found) == noted
    for text in found:
        assert text.startswith(f"devices.rig.watchdog: {watchdog} ms are less than two ticks of {1e3 / rate:g} ms: ")
