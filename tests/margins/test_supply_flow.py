"""The pump of a simulated drive against the flow that the virtual circuit requests."""

from __future__ import annotations

from typing import Any

import pytest
from component_bench import program
from lift_bench import lift

from hilserver.margins.margins import margins
from hilserver.rig.rig import Rig


def with_pump(pump: dict[str, Any], **more: Any) -> Rig:
    """The lift, whose virtual pump delivers 60 l/min, on a drive with this pump."""
    plain = {"pressure": None, "command": None}
    line = {"type": "volume", "ports": {"P": "S"}, "volume": "2 l"}
    supply = {**plain, "ports": {"P": "S", "T": "T"}, **pump}
    return lift({"devices": {"rig": {"drive": {"components": {"supply": supply, "line": line, **more}}}}})


def too_small(rig: Rig) -> list[str]:
    return [text for text in margins(rig, program()).warnings([]) if ".drive: " in text]


def variable(flow: str) -> dict[str, Any]:
    return {"type": "pressure_compensated_pump", "max_flow": flow, "set_pressure": "210 bar"}


def test_a_pump_that_is_too_small_is_named() -> None:
    (text,) = too_small(with_pump(variable("20 l/min")))
    assert text.startswith(
        "devices.rig.drive: components.supply.max_flow: the pump delivers 20 l/min, but the virtual circuit requests "
    )
    assert " l/min at " in text
    assert text.endswith("use a larger pump or an accumulator, or a smaller flow in the virtual circuit.")


@pytest.mark.parametrize(("speed", "count"), [("500 rpm", 1), ("2500 rpm", 0)])
def test_a_fixed_pump(speed: str, count: int) -> None:
    """28 cm³/rev: 14 and 70 l/min."""
    relief = {
        "type": "relief_valve",
        "ports": {"P": "S", "T": "T"},
        "opening_pressure": "200 bar",
        "override": [["5 bar", "30 l/min"], ["15 bar", "80 l/min"]],
    }
    found = too_small(with_pump({"type": "fixed_pump", "displacement": "28 cm^3/rev", "speed": speed}, relief=relief))
    assert len(found) == count
    assert all("components.supply.displacement: the pump delivers 14 l/min" in text for text in found)


def test_no_warning_of_a_pump_that_is_large_enough_or_has_help() -> None:
    assert too_small(with_pump(variable("80 l/min"))) == []
    assert too_small(lift()) == []
    accumulator = {
        "type": "accumulator",
        "ports": {"P": "S"},
        "gas_volume": "10 l",
        "precharge": "100 bar",
        "nominal_flow": {"flow": "60 l/min", "drop": "1 bar"},
    }
    assert too_small(with_pump(variable("20 l/min"), accumulator=accumulator)) == []
