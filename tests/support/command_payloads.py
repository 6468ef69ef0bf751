"""Payloads of commands: right ones of every command, and everything that can be wrong with them."""

from __future__ import annotations

import json
import math
from typing import Any

from hilserver.protocol.commands import COMMANDS

VALID: dict[str, list[dict[str, Any]]] = {
    "arm": [{}],
    "disarm": [{}],
    "trip": [{}],
    "start": [{}],
    "stop": [{}],
    "reset": [{}],
    "set_input": [{"input": "joystick", "value": 0.5}, {"input": "joystick", "value": -1}],
    "set_parameter": [{"component": "relief", "set": {"opening_pressure": "120 bar"}}],
    "switch": [
        {"component": "relief", "set": {"nominal_flow.flow": "60 l/min", "points": [1, 2.5, None, True]}},
        {"component": "pump", "type": "fixed_pump", "values": {"displacement": "28 cm^3"}},
        {"component": "pump", "type": "fixed_pump"},
    ],
    "switch_circuit": [{"circuit": {"components": {"tank": {"type": "tank"}}}}, {"file": "lift.toml"}],
    "strategy": [
        {"valve": "main", "strategy": "pid"},
        {"actuator": "table", "strategy": "adaptive"},
    ],
    "jog": [{"valve": "main", "command": -0.05}, {"actuator": "table", "command": 1}],
    "cycle": [{"action": "start"}, {"action": "stop"}],
    "react": [
        {"reaction": "overload", "when": "p_A > 200 bar", "then": "stop", "hold": "5 ms", "hysteresis": "5 bar"},
        {"reaction": "end", "when": "x > 0.4 m", "then": "set", "input": "joystick", "value": -0.5, "ramp": "0.2 s"},
    ],
    "play": [
        {
            "playout": "fatigue",
            "input": "joystick",
            "channel": "p_A",
            "amplitude": "10 bar",
            "frequency": "2 Hz",
            "cycles": 100000,
            "tolerance": 0.05,
        }
    ],
    "end_playout": [{"playout": "fatigue"}, {}],
    "release": [{"reaction": "overload"}, {}],
    "trigger": [
        {"trigger": "peak", "when": "p_A > 200 bar", "hysteresis": "5 bar", "before": "0.5 s", "after": "1 s"},
        {"trigger": "start", "mode": "RUNNING", "repeat": True},
        {"trigger": "switch", "event": "switch"},
    ],
    "end_trigger": [{"trigger": "peak"}, {}],
}
"""Every command with payloads that are right."""

_WRONG_TYPES: dict[type, list[Any]] = {
    str: [7, True, None, ["a"], {"a": 1}, "", "x" * 300, "line\nbreak"],
    float: ["0.5", True, None, [0.5], {"value": 0.5}],
    int: ["0.5", True, None, [0.5], {"value": 0.5}],
    dict: ["a", 7, True, ["a"]],
}
_NOT_A_COMMAND: dict[str, bytes] = {
    "empty": b"",
    "blank": b"  \n",
    "not JSON": b"start now",
    "single quotes": b"{'id': '1'}",
    "cut off": b'{"id": "1", "expires": 17',
    "trailing comma": b'{"id": "1",}',
    "two objects": b"{}{}",
    "number": b"1",
    "text": b'"start"',
    "null": b"null",
    "true": b"true",
    "NaN": b"NaN",
    "list": b'[{"id": "1"}]',
    "binary": bytes(range(256)),
    "zeros": bytes(100),
    "Latin-1": '{"id": "größe"}'.encode("latin-1"),
    "UTF-16": '{"id": "1"}'.encode("utf-16"),
    "UTF-8 with BOM": b"\xef\xbb\xbf{}",
    "deep lists": b"[" * 60_000,
    "deep objects": b'{"a":' * 12_000,
    "key twice": b'{"id": "1", "id": "2"}',
    "half a character as key": b'{"\\ud800": 1}',
    "half a character as id": b'{"id": "\\udfff"}',
    "id is a number": b'{"id": 7}',
    "id is empty": b'{"id": ""}',
    "id is long": b'{"id": "' + b"x" * 65 + b'"}',
    "id is no text": b'{"id": {"id": "7"}}',
    "id has control characters": b'{"id": "a\\u0000b"}',
    "expires is a text": b'{"expires": "tomorrow"}',
    "expires is NaN": b'{"expires": NaN}',
    "expires is infinite": b'{"expires": 1e999}',
    "expires is endless": b'{"expires": ' + b"9" * 60_000 + b"}",
    "65 KiB": b'{"id": "big", "x": "' + b"x" * 65 * 1024 + b'"}',
    "2 MiB": b'{"id": "big", "x": "' + b"x" * 2 * 1024 * 1024 + b'"}',
    "2 MiB of zeros": bytes(2 * 1024 * 1024),
    "5000 keys": b"{" + b",".join(b'"k%d":1' % i for i in range(5000)) + b"}",
}
_SPECIAL: list[tuple[str, bytes, str]] = [
    ("jog", b'{"valve": "main", "command": 1.01}', "command: 1.01 is out of range: must be -1 ... 1"),
    ("jog", b'{"valve": "main", "command": -1e300}', "command"),
    ("jog", b'{"valve": "main", "comand": 0.1}', "Did you mean command?"),
    ("cycle", b'{"action": "pause"}', "action"),
    ("cycle", b'{"action": ""}', "action"),
    ("switch", b'{"component": "relief"}', "give either set"),
    ("switch", b'{"component": "relief", "set": {}}', "set: empty"),
    ("switch", b'{"component": "relief", "values": {"a": 1}}', "give either set"),
    ("switch", b'{"component": "relief", "set": {"a": 1}, "type": "tank"}', "set and type exclude each other"),
    ("switch", b'{"component": "relief", "set": {"a": [1, NaN]}}', "set.a[1]: nan is not a finite number"),
    ("switch", b'{"component": "relief", "set": {"a": -Infinity}}', "set.a: -inf is not a finite number"),
    ("switch", b'{"component": "relief", "set": {"a": 1, "a": 2}}', "appears twice"),
    ("switch", b'{"component": "relief", "set": {"a": "\\ud83d"}}', "set.a: contains half a character"),
    ("switch", b'{"component": "a", "set": {"a": ' + b"[" * 40 + b"]" * 40 + b"}}", "nested too deeply"),
    ("set_parameter", b'{"component": "relief", "type": "tank"}', "type: unknown key"),
    ("switch_circuit", b"{}", "give either circuit"),
    ("strategy", b'{"strategy": "pid"}', "give either valve or actuator"),
    ("strategy", b'{"strategy": "pid", "valve": "main", "actuator": "table"}', "give either valve or actuator"),
    ("switch_circuit", b'{"file": "a.toml", "circuit": {"components": {}}}', "give either circuit"),
    ("switch_circuit", b'{"circuit": {}}', "circuit: empty"),
    ("trigger", b'{"trigger": "a"}', "give exactly one of when, mode and event"),
    ("trigger", b'{"trigger": "a", "mode": "FAULT", "event": "switch"}', "give exactly one of when, mode and event"),
    ("trigger", b'{"trigger": "../a", "event": "switch"}', "trigger: "),
    ("armm", b"{}", "unknown command. Did you mean arm?"),
    ("emergency", b"{}", "unknown command. Allowed: arm, cycle"),
    ("Start", b"{}", "unknown command. Did you mean start?"),
]


def _variants(name: str, right: dict[str, Any]) -> list[tuple[str, bytes, str]]:
    """What can be wrong with a command, one thing at a time."""

    def entry(changed: dict[str, Any], expected: str) -> tuple[str, bytes, str]:
        return name, json.dumps({"id": "v", **changed}).encode(), expected

    found = [entry({**right, "colour": "red"}, "colour: unknown key")]
    found += [(name, json.dumps({**right, "expires": math.nan}).encode(), "expires: nan is not a finite number")]
    found += [(name, json.dumps(right).encode()[:-1], "not JSON")]
    for key, value in right.items():
        required = COMMANDS[name].model_fields[key].is_required()
        if required:
            found.append(entry({k: v for k, v in right.items() if k != key}, f"{key}: missing"))
        for wrong in _WRONG_TYPES[type(value)]:
            if wrong is not None or required:
                found.append(entry({**right, key: wrong}, f"{key}: "))
        found.append((name, json.dumps({**right, key: math.inf}).encode(), f"{key}: inf is not a finite number"))
    return found


MALFORMED: list[tuple[str, bytes, str]] = [
    *((name, payload, "") for payload in _NOT_A_COMMAND.values() for name in ("start", "switch")),
    *_SPECIAL,
    *(variant for name, rights in VALID.items() for variant in _variants(name, rights[0])),
]
"""Payloads that are refused: the command's name, the payload, what the reason must hold."""
