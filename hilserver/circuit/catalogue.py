"""The component types of a library as published, so that a client knows what a circuit of this server may use."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from hilserver.circuit.library import Library
from hilserver.components.base import Component
from hilserver.protocol.published import ComponentTypes, DatasheetPart, DatasheetValue, TypeInfo
from hilserver.units import LARGEST, Unit


def component_types(library: Library) -> ComponentTypes:
    """Every type of a library, those of the rig's own files included."""
    return ComponentTypes(types={name: _type_info(kind) for name, kind in library.types.items()})


def _type_info(kind: type[Component]) -> TypeInfo:
    return TypeInfo(
        description=(inspect.getdoc(kind) or "").partition("\n")[0],
        ports=(*kind.hydraulic, *kind.mechanical, *kind.rotational),
        inputs=kind.inputs,
        outputs=kind.outputs,
        values=values_of(kind),
    )


def values_of(kind: type[BaseModel]) -> dict[str, DatasheetValue]:
    """What is known about the values of a model, by key."""
    return {key: _value(info) for key, info in kind.model_fields.items() if key != "description"}


def part_of(info: FieldInfo) -> DatasheetPart:
    """What is known about a value of a model."""
    return DatasheetPart(**_about(info))


def facts_of(info: FieldInfo) -> list[Any]:
    """What the type of a field says beside itself: units, limits, models, references, texts to choose from."""
    return [*info.metadata, *_facts(info.annotation)]


def _value(info: FieldInfo) -> DatasheetValue:
    model = next((fact for fact in _facts(info.annotation) if isinstance(fact, type)), None)
    inner = model.model_fields if model is not None and issubclass(model, BaseModel) else {}
    parts = {key: part_of(part) for key, part in inner.items()}
    return DatasheetValue(**_about(info), parts=parts)


def _about(info: FieldInfo) -> dict[str, Any]:
    """What is known about a value, by the keys of a `DatasheetPart`."""
    default = None if info.is_required() else info.get_default(call_default_factory=True, validated_data={})
    facts = facts_of(info)
    unit = next((fact for fact in facts if isinstance(fact, Unit)), None)
    lowest = [float(str(fact.ge if isinstance(fact, Ge) else fact.gt)) for fact in facts if isinstance(fact, Ge | Gt)]
    highest = [float(str(fact.le if isinstance(fact, Le) else fact.lt)) for fact in facts if isinstance(fact, Le | Lt)]
    if unit is not None and unit.largest < LARGEST:
        highest.append(unit.largest)
    return {
        "description": info.description or "",
        "required": info.is_required(),
        "default": to_jsonable_python(None if default is PydanticUndefined else default, fallback=str),
        "unit": unit.si if unit is not None else "",
        "example": unit.example if unit is not None else "",
        "minimum": max(lowest, default=None),
        "maximum": min(highest, default=None),
        "choices": tuple(fact for fact in facts if isinstance(fact, str)),
    }


def _facts(annotation: Any) -> Iterator[Any]:
    """Units, limits, models and literal texts in the type of a field, but not in the elements of its lists."""
    if get_origin(annotation) is Literal:
        yield from (word for word in get_args(annotation) if isinstance(word, str))
    elif hasattr(annotation, "__metadata__"):
        yield from annotation.__metadata__
    elif isinstance(annotation, type):
        yield annotation
    elif get_origin(annotation) is not tuple:
        for part in get_args(annotation):
            yield from _facts(part)
