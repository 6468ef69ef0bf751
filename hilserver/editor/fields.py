"""The datasheet values of a component in the order in which somebody enters them: what must be given comes first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hilserver.protocol.published import DatasheetValue, TypeInfo
from hilserver.web.datasheet import DatasheetField, fields_of

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
