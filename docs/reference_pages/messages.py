"""The reference pages of MQTT messages and of the log's columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hilserver.protocol import commands, description, topics
from hilserver.protocol.address import BrokerAddress
from hilserver.tick import codes
from hilserver.tick.bridge.strategies import Strategy
from hilserver.tick.columns import column_reference
from reference_pages.docstrings import docstring
from reference_pages.fields import COLUMNS, flat_fields
from reference_pages.markdown import Row, cell, table

Json = dict[str, Any]


def log_page() -> str:
    """Reference of the log's columns, from the records of the row."""
    intro = """\
[Recording and replay](../recording.md) explains how a log is made and read. These are the columns of every log; `*`
stands for a name of the rig file (a channel, a valve, …), `<k>` for a number of ticks. Values are in SI units, gauge
pressures; *SI* stands for the unit of the channel, *raw* for that of the device."""
    rows = [
        (f"`{cell(name)}`".replace("&lt;", "<"), found.unit, cell(found.description))
        for name, found in column_reference()
    ]
    parts = ["# Columns of the log", intro, table(("column", "unit", "meaning"), rows)]
    enums = (codes.Mode, codes.FaultCode, codes.ResultCode, codes.Saturation, Strategy)
    for meanings in enums:
        rows = [(str(int(m)), f"`{m.name}`", cell(getattr(m, "text", ""))) for m in meanings]
        name = meanings.__name__.removesuffix("Code").lower()
        parts += [f"## Values of `{name}`", table(("number", "name", "meaning"), rows)]
    return "\n\n".join(parts) + "\n"


def mqtt_page() -> str:
    """Reference of the MQTT protocol, from the schemas that the server itself publishes."""
    described = description.describe("<rig>", "", channels={}, inputs={}, valves={})
    schemas = description.schemas()
    intro = """\
[MQTT](../mqtt.md) explains how to use these messages, what is refused and who may do what. Every payload is one JSON
object in UTF-8; only `availability` is plain text. A number that is not finite is written as `null`. Readers ignore
keys that they do not know; commands with unknown keys are refused."""
    rows = [
        (f"`{cell(info.topic)}`".replace("&lt;", "<"), "yes" if info.retained else "no", cell(info.description))
        for info in described.topics.values()
    ]
    parts = ["# MQTT topics and messages", intro, "## Topics", table(("topic", "retained", "content"), rows)]
    for name in described.topics:
        if name in schemas:
            rows = [(key, kind, what) for key, kind, _, what in message_keys(schemas[name], schemas[name])]
            parts += [f"## `{name}`", schemas[name]["description"], table(("key", "value", "meaning"), rows)]
    head = ("key", "value", "default", "meaning")
    every = list(message_keys(commands.Command.model_json_schema(), {}))
    parts += ["## Commands", "Each command has its own topic and may contain these keys:", table(head, every)]
    for name, command in described.commands.items():
        schema = schemas[f"command/{name}"]
        own = [row for row in message_keys(schema, schema) if row not in every]
        parts += [f"### `command/{name}`", f"`{command.topic}`", schema["description"]]
        parts += [table(head, own) if own else "No keys of its own: `{}`."]
    schema = schemas[f"command/{topics.HEARTBEAT}"]
    keys = list(message_keys(schema, schema))
    parts += ["## The heartbeat of an operator", f"`{cell('hil/<rig>/command/heartbeat')}`".replace("&lt;", "<")]
    parts += [schema["description"], table(head, keys)]
    login = ("`rig`", "text", "–", "", "name of the rig, if the login is for one rig only")
    parts += ["## The login file", docstring(BrokerAddress)]
    parts += ["A TOML file for `--broker` and `HILSERVER_BROKER`. Paths in it are relative to it."]
    parts += [table(COLUMNS, [login, *flat_fields(BrokerAddress)])]
    return "\n\n".join(parts) + "\n"


def message_keys(schema: Json, whole: Json, prefix: str = "") -> Iterator[Row]:
    """Key, kind of value, default and description of each key of a JSON Schema, those of inner objects after theirs."""
    for key, value in schema.get("properties", {}).items():
        inner, step = inner_object(value, whole)
        default = "–" if value.get("default") in (None, "", [], {}) else f"`{json.dumps(value['default'])}`"
        if key in schema.get("required", ()):
            default = "**required**"
        text = value.get("description") or (inner or {}).get("description", "")
        yield f"`{prefix}{key}`", json_kind(value), default, cell(text)
        if inner is not None:
            yield from message_keys(inner, whole, f"{prefix}{key}{step}")


def inner_object(value: Json, whole: Json) -> tuple[Json | None, str]:
    """The schema of the object that a key holds, where it has keys of its own; the step to it: one, by name, a list."""
    for part in value.get("anyOf", [value]):
        if "$ref" in part:
            return whole["$defs"][part["$ref"].rpartition("/")[2]], "."
        for inner, step in ((part.get("additionalProperties"), ".<name>"), (part.get("items"), "[]")):
            found, rest = inner_object(inner, whole) if isinstance(inner, dict) else (None, "")
            if found is not None:
                return found, step + rest
    return None, ""


def json_kind(value: Json) -> str:
    """The kind of a JSON value, in words."""
    if "anyOf" in value:
        return " or ".join(dict.fromkeys(json_kind(part) for part in value["anyOf"]))
    if "enum" in value:
        return " or ".join(f'`"{word}"`' for word in value["enum"])
    kind = value.get("type")
    if kind == "array":
        return f"list: {json_kind(value['items'])}"
    if kind == "object":
        more = value.get("additionalProperties")
        return f"object, by name: {json_kind(more)}" if isinstance(more, dict) and more else "object"
    if value.get("$ref", "").endswith("/JsonValue"):
        return "any value"
    words = {"string": "text", "integer": "whole number", "boolean": "`true` or `false`", "null": "`null`"}
    ends = [f"{value[end]:g}" for end in ("minimum", "maximum") if end in value]
    if kind == "number":
        return "number" + (f", {' … '.join(ends)}" if ends else "")
    return words.get(str(kind), "object" if "$ref" in value else "any value")
