"""Tables of the keys of pydantic models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Interval, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hilserver.units import PlainNumber, Quantity, Unit
from reference_pages.docstrings import docstring
from reference_pages.markdown import Row, cell, table

ANY_UNIT = {"quantity": "250 bar", "difference": "5 bar", "quantity_per_second": "5000 bar/s"}
"""Examples of quantities of any kind, by the function that reads them."""
COLUMNS = ("key", "example", "default", "allowed", "meaning")


def datasheet_fields(model: type[BaseModel], prefix: str = "") -> Iterator[Row]:
    """A row per key, those of nested tables as ``table.key``."""
    for name, field in model.model_fields.items():
        yield field_row(prefix + name, field)
        inner = model_in(field.annotation)
        if inner is not None:
            many = get_origin(field.annotation) is dict
            yield from datasheet_fields(inner, f"{prefix}{name}.{'<name>.' if many else ''}")


def flat_fields(model: type[BaseModel]) -> Iterator[Row]:
    """A row per key, without the keys of nested tables."""
    return (field_row(name, field) for name, field in model.model_fields.items())


def field_row(key: str, field: FieldInfo) -> Row:
    """Key, how it is written, default, allowed range, description."""
    model = model_in(field.annotation)
    text = field.description or (docstring(model).split("\n")[0] if model else "")
    return (f"`{key}`", example_of(field), default(field), allowed(field), cell(text))


def field_table(rows: Iterator[Row]) -> str:
    """The rows as a table."""
    return table(COLUMNS, list(rows))


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The table that a key holds (``Dither``, ``Leakage | None``, ``dict[str, ChannelSettings]``), None for a value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation is not Quantity:
        return annotation
    if get_origin(annotation) is tuple:
        return None
    return next((model for part in get_args(annotation) if (model := model_in(part))), None)


def example_of(field: FieldInfo) -> str:
    """An example of the key's own, otherwise its default where this is a quantity other than 0, otherwise one of its
    kind."""
    if field.examples:
        return f"`{json.dumps(field.examples[0], ensure_ascii=False)}`"
    of_a_unit = any(isinstance(mark, Unit) for mark in field.metadata)
    if of_a_unit and isinstance(field.default, str) and float(field.default.split()[0]) != 0.0:
        return f"`{json.dumps(field.default)}`"
    return written(field.annotation, field.metadata)


def written(annotation: Any, metadata: list[Any] | tuple[Any, ...] = ()) -> str:
    """An example of a value as written in a file."""
    for mark in metadata:
        if isinstance(mark, Unit):
            return f'`"{mark.example}"`'
        if isinstance(mark, PlainNumber):
            return "number"
        if example := ANY_UNIT.get(getattr(getattr(mark, "func", None), "__name__", "")):
            return f'`"{example}"`'
    arguments = get_args(annotation)
    if hasattr(annotation, "__metadata__"):
        return written(arguments[0], annotation.__metadata__)
    if get_origin(annotation) is Literal:
        return " or ".join(f'`"{value}"`' if isinstance(value, str) else f"`{value}`" for value in arguments)
    if get_origin(annotation) is tuple:
        inner = [written(part) for part in arguments if part is not Ellipsis]
        return "[" + ", ".join(inner) + (", …]" if Ellipsis in arguments else "]")
    if get_origin(annotation) is dict:
        return "tables" if arguments[1] is not str else "texts by name"
    if model_in(annotation):
        return "table"
    if arguments:
        return written(next(part for part in arguments if part is not type(None)))
    return {bool: "`true` or `false`", int: "whole number", str: "text", Path: "file name", float: "number"}.get(
        annotation, ""
    )


def default(field: FieldInfo) -> str:
    """A default as written in a file."""
    if field.is_required():
        return "**required**"
    value = field.default
    if field.default_factory is not None or isinstance(value, BaseModel) or value in (None, "", (), {}):
        return "–"
    if isinstance(value, dict):
        return "`{ " + ", ".join(f"{key} = {json.dumps(part)}" for key, part in value.items()) + " }`"
    if isinstance(value, bool | str):
        return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{json.dumps(value)}`"
    return "`" + str(list(value) if isinstance(value, tuple) else value) + "`"


def allowed(field: FieldInfo) -> str:
    """The allowed range, SI."""
    found = []
    for mark in field.metadata:
        marks = list(mark) if isinstance(mark, Interval) else [mark]
        for bound in marks:
            for kind, sign, attribute in ((Gt, ">", "gt"), (Ge, "≥", "ge"), (Lt, "<", "lt"), (Le, "≤", "le")):
                if isinstance(bound, kind):
                    found.append(f"{sign} {getattr(bound, attribute):g}")
            if isinstance(bound, MinLen) and bound.min_length:
                found.append("not empty")
            if isinstance(bound, MaxLen):
                found.append(f"at most {bound.max_length}")
    return ", ".join(found)
