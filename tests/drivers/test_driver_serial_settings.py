"""Settings of the serial driver: what is wrong is named, and the configuration needs no library."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from hilserver.errors import DriverError, problems_of
from hilserver_drivers.serial_line import SerialLine
from hilserver_drivers.serial_line.settings import SerialConfig

PORT = {"port": "/dev/ttyUSB0"}
LINES = {**PORT, "lines": {}}
FRAME = {**PORT, "frame": {"start": "AA", "size": 4, "check": "crc8"}}
BYTE = {"byte": 0, "type": "uint8"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({**PORT, "inputs": {"a": {"column": 0}}}, "give either lines or frame"),
        ({**LINES, "frame": FRAME["frame"], "inputs": {"a": {"column": 0}}}, "give either lines or frame"),
        ({**LINES, "inputs": {"a": {}}}, "inputs.a: give one of column, name, pattern (lines) or byte (frames)"),
        ({**LINES, "inputs": {"a": {"column": 0, "name": "a"}}}, "inputs.a: give one of column"),
        ({**LINES, "inputs": {"a": BYTE}}, "inputs.a: lines have no byte and type"),
        ({**FRAME, "inputs": {"a": {"column": 0}}}, "inputs.a: a frame has byte and type"),
        ({**FRAME, "inputs": {"a": {"byte": 0}}}, "inputs.a: byte and type belong together"),
        ({**FRAME, "inputs": {"a": {"byte": 2, "type": "int24"}}}, "inputs.a reaches beyond the payload of 4 bytes"),
        ({**FRAME, "inputs": {"a": {**BYTE, "bit": 8}}}, "inputs.a: bit = 8 needs a type with more bits"),
        ({**LINES, "inputs": {"a": {"pattern": "(x"}}}, 'inputs.a.pattern: "(x" is not a regular expression'),
        ({**LINES, "inputs": {"a": {"pattern": "x"}}}, 'inputs.a.pattern: "x" has 0 groups'),
        ({**PORT, "lines": {"columns": 2}, "inputs": {"a": {"column": 2}}}, "inputs.a: there is no column 2 of 2"),
        ({**PORT, "lines": {"decimal": ","}}, 'lines: separator and decimal are both ","'),
        ({**PORT, "frame": {"size": 4, "check": "none"}}, "frame: without start and check the beginning"),
        ({**PORT, "frame": {"size": 4, "start": "AA"}}, "frame.check: missing"),
        (
            {**PORT, "frame": {"size": 4, "start": "AAx", "check": "crc8"}},
            'frame.start: "AAx" are not bytes in hexadecimal',
        ),
        ({**PORT, "frame": {"size": 4, "check": "crc9"}}, 'frame.check: "crc9" is not one of'),
        (
            {**PORT, "frame": {"size": 4, "check": "crc8", "check_from": 4}},
            "frame: check_from = 4 is after the payload",
        ),
        ({**FRAME, "request": "4x"}, 'request: "4x" are not bytes in hexadecimal digits'),
        ({**LINES, "request": "€"}, 'request: "€" has characters that are not bytes'),
        (
            {**LINES, "inputs": {"a": {"column": 0, "request": "?"}, "b": {"column": 0}}},
            "some inputs have a request and others do not",
        ),
        ({**FRAME, "answer": "OK"}, "answer is a line: give lines, too"),
        ({**PORT, "outputs": {"v": {"format": "V {:.3f}\n"}}}, "outputs.v.safe: missing"),
        ({**PORT, "outputs": {"v": {"safe": 0}}}, "outputs.v: give either format (a line), or byte and type"),
        (
            {**PORT, "outputs": {"v": {"safe": 0, "format": "V\n"}}},
            "can't be used to write a number (it needs {} once)",
        ),
        (
            {**PORT, "outputs": {"v": {"safe": 0, "format": "V {:d}\n"}}},
            "can't be used to write a number (Unknown format",
        ),
        ({**PORT, "outputs": {"v": {"safe": 0, "format": "{0.real}"}}}, "{0.real} names something"),
        ({**PORT, "outputs": {"v": {"safe": 0, **BYTE}}}, "outputs.v has a byte: give command"),
        (
            {**PORT, "command": FRAME["frame"], "outputs": {"v": {"safe": 256, **BYTE}}},
            "safe = 256 does not fit into a uint8",
        ),
        (
            {**PORT, "command": FRAME["frame"], "outputs": {"v": {"safe": 0, **BYTE}, "w": {"safe": 0, **BYTE}}},
            "outputs.w and outputs.v share byte 0",
        ),
        ({**LINES, "timeout": "3 s"}, "timeout (3 s) must be at most a third of hang_time (2 s)"),
        ({**LINES, "parity": "mark"}, 'parity: "mark" is not one of'),
    ],
)
def test_wrong_settings_are_named(settings: Mapping[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError) as caught:
        SerialConfig.model_validate(settings)
    said = "\n".join(map(str, problems_of(caught.value, settings, names=SerialConfig.model_fields)))
    assert expected in said


def test_configuration_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "serial", None)
    driver = SerialLine("io", SerialConfig.model_validate({**LINES, "inputs": {"a": {"column": 0}}}), ["a"], [])
    with pytest.raises(DriverError, match=r"device io: serial can't be imported .* pip install 'hilserver\[serial\]'"):
        driver.open()
