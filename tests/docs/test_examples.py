"""Examples on the reference pages of drivers and components are valid, and so are a rig file's beside the other keys.

For the files' other keys see test_reference.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from reference_pages.fields import field_row, model_in

from hilserver.circuit.library import standard_library
from hilserver.driver import installed_drivers
from hilserver.rig.channels import LimitSettings
from hilserver.rig.settings import OutputSettings, RigSettings, ValveSettings

POINTS = {"raw": [0, 10], "value": ["0 bar", "250 bar"]}
POINT = {"flow": "60 l/min", "drop": "35 bar", "per": "edge"}
PLACE = {"device": "daq", "output": "ao0"}
TABLES: dict[type[BaseModel], tuple[Mapping[str, Any], ...]] = {
    LimitSettings: (
        {"channel": "p_A", "action": "trip", "max": "250 bar"},
        {"channel": "x", "action": "stop", "max": "0.4 m", "valves": {"main": 1}},
    ),
    OutputSettings: (
        {**PLACE, "on": "armed", "raw": [0, 1]},
        {**PLACE, "on": "armed", "scale": POINTS},
    ),
    ValveSettings: (
        {"port": "A", "supply": "p_S", "tank": "p_T", "nominal_flow": POINT, "f45": "30 Hz", "raw": [0, 1], **PLACE},
        {"port": "A", "supply": "p_S", "tank": "p_T", "nominal_flow": POINT, "f90": "30 Hz", "raw": [0, 1], **PLACE},
    ),
}
"""Valid tables, or such as the example makes valid: each example must fit into one."""

DOCUMENTED: tuple[type[BaseModel], ...] = (
    *(driver.Config for driver in installed_drivers().values()),
    *standard_library().types.values(),
)


def with_inner(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model and those of the tables in it."""
    yield model
    for field in model.model_fields.values():
        if inner := model_in(field.annotation):
            yield from with_inner(inner)


MODELS = list(dict.fromkeys(inner for model in DOCUMENTED for inner in with_inner(model)))


def example(model: type[BaseModel], key: str) -> list[Any]:
    """What the page shows for a key, where it is a value and not a word such as "number"."""
    shown = field_row(key, model.model_fields[key])[1].replace("`", "")
    shown = re.sub(r'("[^"]*"), …\]', r"\1, \1]", shown)  # as many as one likes: two
    try:
        return [tomllib.loads(f"value = {shown}")["value"]]
    except tomllib.TOMLDecodeError:
        return []


def refusal(validate: Any, value: object) -> str:
    try:
        validate(value)
    except ValidationError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_example_is_accepted_by_its_key(model: type[BaseModel]) -> None:
    for key, field in model.model_fields.items():
        kind: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        adapter = TypeAdapter(kind)
        for value in example(model, key):
            reason = refusal(adapter.validate_python, value)
            assert not reason, f"{model.__name__}.{key} = {value!r}: {reason}"


@pytest.mark.parametrize("model", TABLES, ids=lambda model: model.__name__)
def test_every_example_fits_into_a_table_of_a_rig_file(model: type[BaseModel]) -> None:
    checked = 0
    for key in model.model_fields:
        for value in example(model, key):
            reasons = [refusal(model.model_validate, {**table, key: value}) for table in TABLES[model]]
            assert "" in reasons, f"{model.__name__}.{key} = {value!r}: {reasons}"
            checked += 1
    assert checked > 1


@pytest.mark.parametrize("model", [*MODELS, *dict.fromkeys(with_inner(RigSettings))], ids=lambda model: model.__name__)
def test_every_default_is_shown_as_it_is_written(model: type[BaseModel]) -> None:
    for key, field in model.model_fields.items():
        shown = field_row(key, field)[2]
        if shown.startswith("`"):
            tomllib.loads(f"value = {shown.strip('`')}")
