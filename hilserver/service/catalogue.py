"""The component types of a library as they are published: a client knows what a circuit of this server may use."""

from __future__ import annotations

import inspect

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from hilserver.circuit.library import Library
from hilserver.components.base import Component
from hilserver.protocol.published import ComponentTypes, DatasheetValue, TypeInfo


def component_types(library: Library) -> ComponentTypes:
    """Every type of a library, those of the rig's own files included."""
    return ComponentTypes(types={name: _type_info(kind) for name, kind in library.types.items()})


def _type_info(kind: type[Component]) -> TypeInfo:
    return TypeInfo(
        description=(inspect.getdoc(kind) or "").partition("\n")[0],
        ports=(*kind.hydraulic, *kind.mechanical, *kind.rotational),
        inputs=kind.inputs,
        outputs=kind.outputs,
        values={key: _value(info) for key, info in kind.model_fields.items() if key != "description"},
    )


def _value(info: FieldInfo) -> DatasheetValue:
    default = None if info.is_required() else info.get_default(call_default_factory=True, validated_data={})
    if default is PydanticUndefined:
        default = None
    return DatasheetValue(
        description=info.description or "",
        required=info.is_required(),
        default=to_jsonable_python(default, fallback=str),
    )
