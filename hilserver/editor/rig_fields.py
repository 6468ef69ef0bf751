"""The parts of a rig file and their values, as the settings of `hilserver.rig.settings` describe them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, StringConstraints, ValidationError
from pydantic.fields import FieldInfo

from hilserver.circuit.catalogue import facts_of, part_of
from hilserver.driver import Driver, driver_named, installed_drivers
from hilserver.editor.parts import Table, below, tables
from hilserver.errors import HilserverError
from hilserver.protocol.published import DatasheetPart
from hilserver.rig.build import PLANT_FILES
from hilserver.rig.checks import channel_kinds
from hilserver.rig.references import Names
from hilserver.rig.settings import RigSettings
from hilserver.units import Quantity
from hilserver.web.datasheet import DatasheetField, as_text

DEVICES, PORTS = "devices", "ports"
Choices = Callable[[FieldInfo], tuple[str, ...]]


@dataclass(frozen=True)
class RigSection:
    """A table of the rig file; ``model``: of each of its entries, or of itself; None: entries without one.

    ``is_list``: its entries have names that the user gives.
    """

    key: str
    about: str
    model: type[BaseModel] | None
    is_list: bool


def _section(key: str, info: FieldInfo) -> RigSection | None:
    """The table at a key; None if the key is a value of the rig itself."""
    model = _model(info.annotation)
    about = info.description or (inspect.getdoc(model) or "").partition("\n\n")[0] if model else info.description or ""
    if get_origin(info.annotation) is dict:
        return RigSection(key, about, model, is_list=True)
    return RigSection(key, about, model, is_list=False) if model is not None else None


def _model(annotation: Any) -> type[BaseModel] | None:
    """The model in a type, if it is one, or of the values of a dict; not of those of its fields."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation if annotation is not Quantity else None  # which is written as a text
    args = get_args(annotation)
    if get_origin(annotation) is tuple:
        return None
    return next((found for part in args if (found := _model(part)) is not None), None)


SECTIONS = {
    key: section for key, info in RigSettings.model_fields.items() if (section := _section(key, info)) is not None
}
"""All tables of a rig file, in the order of its settings."""


def path_of(part: str) -> tuple[str, ...]:
    """The keys that lead to a part: of an entry, ``channels.p_A``; of a table, ``loop``; "": of the rig itself."""
    section, _, name = part.partition(".")
    return (section, name) if name else (section,) if section else ()


def parts_of(table: Table) -> list[str]:
    """All parts of a rig file."""
    entries = (f"{key}.{name}" for key, section in SECTIONS.items() if section.is_list for name in below(table, key))
    return ["", *(key for key, section in SECTIONS.items() if not section.is_list), *entries]


def about(part: str) -> str:
    """What a part is."""
    section = SECTIONS.get(part.partition(".")[0])
    if section is None:
        return "The rig: its name, its virtual circuit, its work cycle, and the files that belong to it."
    return section.about


class RigFields:
    """The values of the parts of a rig file, as its ``table`` gives them; ``folder``: that of the file."""

    def __init__(self, table: Table, folder: Path) -> None:
        self.table, self._folder = table, folder
        self._kinds = channel_kinds(table)

    def of(self, part: str) -> list[DatasheetField]:
        """The values of a part: given or not, those that must be given first."""
        path = path_of(part)
        section = SECTIONS.get(path[0]) if path else None
        if section is None:
            values = {key: info for key, info in RigSettings.model_fields.items() if key not in SECTIONS}
            return [*self._values(values, self.table)]
        if section.is_list and path[0] == PORTS:
            info = DatasheetPart(description=section.about, required=True, choices=self._channels("Pa"))
            given = below(self.table, PORTS).get(path[1], "")
            return [DatasheetField(path[1], as_text(given), info, is_text=True)]
        given = below(self.table, path[0]) if len(path) == 1 else below(below(self.table, path[0]), path[1])
        if path[0] == DEVICES:
            return [*self._device(given)]
        assert section.model is not None
        found = [*self._values(section.model.model_fields, given, part=given)]
        if path[0] not in self.table:
            found = [_optional(field) for field in found]
        return sorted(found, key=lambda field: (not field.info.required, not field.given, field.key != "description"))

    def lists(self, part: str) -> dict[str, list[str]]:
        """The tables of a part whose entries have names that the user gives, such as the sensors of a device.

        By key, the names of the entries that there are.
        """
        path = path_of(part)
        model, given = SECTIONS[path[0]].model if path else None, self.table
        for key in path:
            given = below(given, key)
        if path[:1] == (DEVICES,):
            driver = _driver(given)
            model = driver.Config if driver is not None else None
        fields = model.model_fields if model is not None else {}
        lists = (k for k, info in fields.items() if get_origin(info.annotation) is dict and _model(info.annotation))
        return {key: list(below(given, key)) for key in lists}

    # --- values of a model -------------------------------------------------------------------------------------------

    def _values(
        self, fields: Mapping[str, FieldInfo], given: Table, prefix: str = "", *, part: Table | None = None
    ) -> Iterator[DatasheetField]:
        for key, info in fields.items():
            value, name = given.get(key), f"{prefix}{key}"
            inner = _model(info.annotation)
            if get_origin(info.annotation) is dict or (inner is None and isinstance(value, Mapping)):
                yield from self._entries(name, info, value)
            elif inner is not None and (value is None or isinstance(value, Mapping)):
                parts = self._values(inner.model_fields, value or {}, f"{name}.", part=part)
                optional = value is None and not info.is_required()
                yield from (_optional(field) for field in parts) if optional else parts
            else:
                about = part_of(info)
                if choices := self._choices(key, info, part or {}):
                    about = about.model_copy(update={"choices": choices})
                yield DatasheetField(name, "" if value is None else as_text(value), about, _is_text(info))

    def _entries(self, name: str, info: FieldInfo, value: object) -> Iterator[DatasheetField]:
        """The values of a table whose keys are names.

        One that is not there is entered as a whole, unless its entries are tables: these are added by name.
        """
        about, model = DatasheetPart(description=info.description or "", required=False), _model(info.annotation)
        if not isinstance(value, Mapping) or not value:
            if model is None or value not in (None, {}):
                yield DatasheetField(name, "" if value in (None, {}) else as_text(value), about)
            return
        for key, each in value.items():
            if model is not None and isinstance(each, Mapping):
                yield from self._values(model.model_fields, each, f"{name}.{key}.")
            else:
                yield DatasheetField(f"{name}.{key}", as_text(each), about)

    def _choices(self, key: str, info: FieldInfo, part: Table) -> tuple[str, ...]:
        """The names that a reference can have, or the channels of the device that an entry names."""
        names = next((fact for fact in facts_of(info) if isinstance(fact, Names)), None)
        if names is not None:
            return self._named(names)
        if key in ("source", "output") and isinstance(device := part.get("device"), str):
            return self.device_channels(device)[key == "output"]
        return ()

    def _named(self, names: Names) -> tuple[str, ...]:
        if names.table == "channels":
            return self._channels(names.unit, measured=names.measured)
        return tuple(below(self.table, names.table))

    def _channels(self, unit: str | None, *, measured: bool = False) -> tuple[str, ...]:
        """The channels of a unit, and those that are not valid and may become so."""
        known = below(self.table, "channels")
        return tuple(
            name
            for name in known
            if (kind := self._kinds.get(name)) is None
            or (unit in (None, kind.unit) and (kind.measured or not measured))
        )

    def single(self, section: str) -> dict[str, Any]:
        """The values of a new entry that can be only one thing: references to the only one of their kind."""
        model = SECTIONS[section].model
        found = {}
        for key, info in model.model_fields.items() if model is not None else ():
            names = next((fact for fact in facts_of(info) if isinstance(fact, Names)), None)
            if names is not None and (info.is_required() or names.table == DEVICES):
                known = self._named(names)
                if len(known) == 1:
                    found[key] = known[0]
        return found

    # --- devices -----------------------------------------------------------------------------------------------------

    def _device(self, given: Table) -> Iterator[DatasheetField]:
        text = as_text(given.get("driver", ""))
        choices = tuple(sorted(installed_drivers()))
        about = DatasheetPart(description="the driver that reads and writes the device", required=True, choices=choices)
        yield DatasheetField("driver", text, about, is_text=True)
        if (driver := _driver(given)) is not None:
            yield from self._values(driver.Config.model_fields, {k: v for k, v in given.items() if k != "driver"})

    def device_channels(self, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The channels that a device can read and write, by its settings; none if these are not valid."""
        given = tables(self.table, DEVICES).get(name, {})
        driver = _driver(given)
        with suppress(ValidationError, HilserverError, OSError, ValueError):
            if driver is not None:
                values = {key: value for key, value in given.items() if key != "driver"}
                config = driver.Config.model_validate(values, context={"folder": self._folder})
                inputs, outputs = driver.channels(config)
                return tuple(each.name for each in inputs), tuple(each.name for each in outputs)
        return (), ()


def _driver(given: Table) -> type[Driver] | None:
    with suppress(HilserverError):
        return driver_named(str(given.get("driver")))
    return None


def _is_text(info: FieldInfo) -> bool:
    return any(fact is str or isinstance(fact, Names | StringConstraints) for fact in facts_of(info))


def _optional(field: DatasheetField) -> DatasheetField:
    """A value of a table that need not be there."""
    return replace(field, info=field.info.model_copy(update={"required": False}))


def circuit_files(table: Table) -> dict[str, list[str]]:
    """The circuit files that the rig and its simulated devices name, by part ("": the rig itself)."""
    found = {"": [table.get("circuit")]}
    for name, device in tables(table, DEVICES).items():
        found[f"{DEVICES}.{name}"] = [device.get(key) for key in PLANT_FILES]
    return {part: [file for file in files if isinstance(file, str) and file] for part, files in found.items()}


def first_and_others(fields: Iterable[DatasheetField]) -> tuple[list[DatasheetField], list[DatasheetField]]:
    """The values that are given or must be, and those that may be given."""
    first, others = list[DatasheetField](), list[DatasheetField]()
    for field in fields:
        (first if field.given or field.info.required else others).append(field)
    return first, others
