"""Settings of the Modbus driver: what is wrong is named, and the configuration needs no library."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest
from modbus_bench import ModbusBench
from pydantic import ValidationError

from hilserver.errors import DriverError, problems_of
from hilserver_drivers.modbus import Modbus
from hilserver_drivers.modbus.settings import ModbusConfig

TCP = {"tcp": {"host": "127.0.0.1", "port": 502}}


def problem(settings: Mapping[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        ModbusConfig.model_validate(settings)
    return "\n".join(map(str, problems_of(caught.value, settings, names=ModbusConfig.model_fields)))


VALVE = {"table": "holding", "address": 100, "type": "int16", "safe": 0}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "give either tcp"),
        ({**TCP, "rtu": {"port": "/dev/ttyUSB0"}}, "give either tcp"),
        ({**TCP, "timeout": "3 s"}, "timeout (3 s) must be at most a third of hang_time (2 s)"),
        (
            {**TCP, "inputs": {"p": {"table": "holding", "address": 1}}},
            'inputs.p: a register needs a type, such as "int16"',
        ),
        ({**TCP, "inputs": {"p": {"table": "coil", "address": 1, "type": "int16"}}}, "inputs.p: a coil is 0 or 1"),
        ({**TCP, "inputs": {"p": {"table": "coil", "address": 1, "bit": 1}}}, "inputs.p: bit is for holding and input"),
        (
            {**TCP, "inputs": {"p": {"table": "input", "address": 65_535, "type": "float32"}}},
            "inputs.p: a float32 at address 65535 reaches beyond the last register",
        ),
        ({**TCP, "inputs": {"p": {"table": "holdings", "address": 1}}}, "inputs.p.table"),
        ({**TCP, "outputs": {"v": {"table": "input", "address": 1, "type": "int16", "safe": 0}}}, "outputs.v.table"),
        ({**TCP, "outputs": {"v": {"table": "coil", "address": 1}}}, "outputs.v.safe: missing"),
        (
            {**TCP, "outputs": {"v": {**VALVE, "safe": 40_000}}},
            "outputs.v: safe = 40000 does not fit: the range of int16",
        ),
        (
            {**TCP, "outputs": {"v": VALVE, "w": {**VALVE, "address": 99, "type": "int32"}}},
            "outputs.w and outputs.v share holding 100",
        ),
        (
            {**TCP, "outputs": {"v": {**VALVE, "type": "float32"}}, "writes": "single"},
            "outputs.v: a float32 can't be written with writes",
        ),
        (
            {**TCP, "outputs": {"v": VALVE}, "watchdog_register": {"address": 100}},
            "watchdog_register and outputs.v share holding 100",
        ),
        ({**TCP, "watchdog_register": {"table": "coil", "address": 1, "mode": "count"}}, "a coil can only toggle"),
        ({"rtu": {"port": "/dev/ttyUSB0"}, "unit": 255}, "unit = 255: on a serial line units are 1 to 247"),
        (
            {"rtu": {"port": "/dev/ttyUSB0"}, "inputs": {"p": {"table": "coil", "address": 1, "unit": 250}}},
            "inputs.p.unit = 250",
        ),
    ],
)
def test_wrong_settings_are_named(settings: Mapping[str, Any], expected: str) -> None:
    assert expected in problem(settings)


def test_configuration_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pymodbus", "serial"):
        monkeypatch.setitem(sys.modules, name, None)
    driver = Modbus("io", ModbusConfig.model_validate({**ModbusBench.channels, **TCP}), ["p_A"], ["valve"])
    with pytest.raises(
        DriverError, match=r"device io: pymodbus can't be imported .* pip install 'hilserver\[modbus\]'"
    ):
        driver.open()
