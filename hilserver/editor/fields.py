"""The datasheet values of a component in the order in which somebody enters them: what must be given comes first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hilserver.editor.parts import Parts, below
from hilserver.protocol.published import DatasheetValue, TypeInfo
from hilserver.web.datasheet import DatasheetField, as_text, fields_of

DESCRIPTION = DatasheetValue(description="free text for the reader of the circuit", required=False)


def component_fields(
    info: TypeInfo | None, part: Mapping[str, Any]
) -> tuple[list[DatasheetField], list[DatasheetField]]:
    """The values that are given or required, and those that may be given.

    A value that is a table, such as a nominal flow with its pressure drop, is entered part by part. Signals are not
    among them: they are connections.
    """
    if info is None:
        return fields_of(None, part), []
    values = {**info.values, "description": DESCRIPTION}
    known = info.model_copy(update={"values": values, "inputs": ()})
    empty = {key: dict[str, Any]() for key, value in values.items() if value.parts}
    first: list[DatasheetField] = []
    others: list[DatasheetField] = []
    for field in fields_of(known, {**empty, **part}):
        key = field.key.partition(".")[0]
        of_optional_table = "." in field.key and key not in part and not values[key].required
        if of_optional_table:
            field = replace(field, info=field.info.model_copy(update={"required": False}))
        (first if field.given or field.info.required or key == "description" else others).append(field)
    return sorted(first, key=lambda field: not field.info.required), others


def mechanism_fields(table: Mapping[str, Any], parts: Parts) -> list[DatasheetField]:
    """The values of a mechanism: its file, the node of each actuator, its parameters, its parts.

    The parts of one in a file of its own are changed there.
    """
    fields = []
    if "definition" not in table:
        about = DatasheetValue(
            description="its file, in the folder of the circuit, below it, or in ../mechanisms", required=True
        )
        fields.append(DatasheetField("file", as_text(table.get("file", "")), about))
    node = DatasheetValue(description="node that the actuator moves; default: of its own name", required=False)
    given = below(table, "nodes")
    for actuator in parts.actuators(table):
        info = node.model_copy(update={"default": actuator})
        fields.append(DatasheetField(f"nodes.{actuator}", as_text(given.get(actuator, "")), info, is_text=True))
    parameter = DatasheetValue(description="parameter of the mechanism", required=False)
    values = below(table, "parameters")
    for name, default in {**parts.parameters_of_mechanism(table), **values}.items():
        info = parameter.model_copy(update={"default": default})
        fields.append(DatasheetField(f"parameters.{name}", as_text(values.get(name, "")), info))
    inner = {"definition": table["definition"]} if "definition" in table else {}
    return [*fields, *fields_of(None, inner)]
