"""A rig with other sources, made from one that was assembled before: what its sources leave unchanged is reused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from hilserver.circuit.library import Library
from hilserver.circuit.model import Circuit, impossible_starts
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.circuit.variant import is_same, read_variant, source_of_part, with_tables
from hilserver.errors import HilserverError
from hilserver.rig.build import PLANT_FILES, assemble, beside, driver_settings, plant_of, raw_slots
from hilserver.rig.plan import build_plan
from hilserver.rig.rig import Device, Rig
from hilserver.rig.simulated import PlantCircuit, joined_component, on_circuit, read_plant
from hilserver.tick.plant import PlantArrays


class _AnotherRigError(Exception):
    """More is different than can be reused here, or something is wrong with it."""


def assemble_variant(rig: Rig, sources: Mapping[str, Any]) -> Rig:
    """The same as `assemble` gives for these sources, bit for bit, and the same errors.

    It is faster where they differ from those of ``rig`` in circuits and simulated devices only. Raises
    ConfigurationError.
    """
    try:
        return _variant(rig, sources)
    except (HilserverError, _AnotherRigError):
        return assemble(sources, rig.file, rig.library, accounts=rig.accounts)


def _variant(rig: Rig, sources: Mapping[str, Any]) -> Rig:
    if _rest(sources) != _rest(rig.sources) or rig.halvings or rig.speed != 1.0:
        raise _AnotherRigError
    circuit, packed, file = rig.circuit, rig.packed, beside(rig.file, rig.settings.circuit)
    if sources["circuit"] != rig.sources["circuit"]:
        circuit = read_variant(rig.circuit, sources["circuit"], rig.library, file)
        packed = rig.pack(circuit, file, rig.packed)
    layout = rig.layout.with_space_for(packed)
    devices = tuple(_devices(rig, sources["rig"]["devices"]))
    settings = rig.settings.model_copy(update={"devices": sources["rig"]["devices"]})
    plan = rig.plan
    if layout != rig.layout or circuit.fluid != rig.circuit.fluid:
        slots = raw_slots(settings, list(devices))
        plan = build_plan(
            settings, rig.cycle, slots, layout, rig.slow_devices, circuit.fluid, float(rig.plan.loop[0].longest_gap)
        )
    tables = {name: _read(rig, name, given) for name, given in sources["devices"].items()}
    plants = {each.name: _plant(rig, each, tables[each.name]) for each in devices if each.name in rig.first_plants}
    return replace(
        rig,
        settings=settings,
        circuit=circuit,
        devices=devices,
        layout=layout,
        plan=plan,
        packed=packed,
        sources={**sources, "circuit": circuit.written, "devices": tables},
        first_plants={name: arrays for name, (_, arrays) in plants.items()},
        plant_circuits={name: joined for name, (joined, _) in plants.items()},
    )


Tables = Mapping[str, Mapping[str, Any]]
"""Tables of components, by name."""


def with_numbers(rig: Rig, device: str, changed: Mapping[str, Tables], settings: Mapping[str, Any]) -> Rig | None:
    """The rig with other numbers of components, and other settings of devices, as `assemble_variant` assembles it.

    ``changed``: tables of components, by circuit: ``circuit``, and ``machine`` and ``drive`` of this simulated device.
    None if more than numbers in the packed circuits becomes different, or something is wrong.
    """
    if rig.halvings or rig.speed != 1.0:
        return None
    try:
        circuit, packed = rig.circuit, rig.packed
        if "circuit" in changed:
            circuit = _circuit_with(circuit, changed["circuit"], rig.library, beside(rig.file, rig.settings.circuit))
            packed = _packed_like(rig.packed, rig.pack(circuit, like=rig.packed))
        plant = _plant_with(rig, device, changed)
        devices = tuple(_devices(rig, settings))
    except (HilserverError, _AnotherRigError):
        return None
    own, plants = rig.sources["devices"], {**rig.plant_circuits, device: plant}
    tables = {key: _with_tables(own[device][key], changed.get(key, {})) for key in PLANT_FILES}
    return replace(
        rig,
        settings=rig.settings.model_copy(update={"devices": settings}),
        circuit=circuit,
        devices=devices,
        packed=packed,
        sources={
            **rig.sources,
            "rig": {**rig.sources["rig"], "devices": settings},
            "circuit": circuit.written,
            "devices": {**own, device: tables},
        },
        first_plants={each.name: _arrays(rig, each, plants[each.name]) for each in devices if each.name in plants},
        plant_circuits=plants,
    )


def _circuit_with(before: Circuit, tables: Tables, library: Library, file: str = "") -> Circuit:
    circuit = with_tables(before, tables, library, file)
    if circuit is None or any(impossible_starts(circuit)):
        raise _AnotherRigError
    return circuit


def _packed_like(before: PackedCircuit, packed: PackedCircuit) -> PackedCircuit:
    """A packed circuit that has the same values and kernels as the one before, which the row and the plan depend on."""
    if packed.packing is None or before.packing is None or packed.packing.cells is not before.packing.cells:
        raise _AnotherRigError
    return packed


def _plant_with(rig: Rig, device: str, changed: Mapping[str, Tables]) -> PlantCircuit:
    """The circuit of a simulated device with other tables of machine and drive."""
    before, (machine, drive) = rig.plant_circuits[device], (rig.sources["devices"][device][key] for key in PLANT_FILES)
    tables = dict(changed.get("machine", {}))
    tables |= {name: joined_component(table, machine, drive) for name, table in changed.get("drive", {}).items()}
    if not tables:
        return before
    if before.packed.drift is not None:
        raise _AnotherRigError
    circuit = _circuit_with(before.circuit, tables, rig.library)
    packed = pack(circuit, rig.library, accounts=rig.accounts, like=before.packed)
    return PlantCircuit(circuit, _packed_like(before.packed, packed))


def _with_tables(part: Mapping[str, Any], tables: Tables) -> Mapping[str, Any]:
    return {**part, "components": {**part["components"], **tables}} if tables else part


def _rest(sources: Mapping[str, Any]) -> dict[str, Any]:
    """The sources without circuits and without the settings of devices."""
    rig_file = {key: table for key, table in sources["rig"].items() if key != "devices"}
    names = list(sources["rig"]["devices"])
    others = {key: table for key, table in sources.items() if key not in ("rig", "circuit", "devices")}
    return {**others, "rig": rig_file, "names": names, "simulated": list(sources["devices"])}


def _devices(rig: Rig, tables: Mapping[str, Any]) -> Iterator[Device]:
    """The devices of the rig with these settings."""
    for device in rig.devices:
        if tables[device.name] == rig.sources["rig"]["devices"][device.name]:
            yield device
            continue
        own, table = rig.sources["rig"]["devices"][device.name], tables[device.name]
        known = {key: _known(device.config, key, own.get(key), value) for key, value in table.items()}
        validated = driver_settings(device.name, known, rig.file, [])
        if validated is None or validated[0] is not device.driver or not device.is_simulated:
            raise _AnotherRigError
        changed = replace(device, config=validated[1])
        if any(changed.unknown_channels()):
            raise _AnotherRigError
        yield changed


def _known(config: Any, key: str, own: object, table: object) -> object:
    """A table of settings in which those that are the same as before are the validated ones of ``config``."""
    validated = getattr(config, key, None)
    if not isinstance(table, Mapping) or not isinstance(own, Mapping) or not isinstance(validated, Mapping):
        return table
    return {name: validated[name] if name in own and is_same(own[name], x) else x for name, x in table.items()}


def _read(rig: Rig, name: str, tables: Mapping[str, Any]) -> dict[str, Any]:
    """The validated circuit tables of a simulated device."""
    own, files = rig.sources["devices"][name], rig.sources["rig"]["devices"][name]
    return {
        key: table if table == own[key] else source_of_part(own[key], table, rig.library, beside(rig.file, files[key]))
        for key, table in tables.items()
    }


def _plant(rig: Rig, device: Device, tables: Mapping[str, Any]) -> tuple[PlantCircuit, PlantArrays]:
    """A simulated device with these circuits."""
    before, own = rig.plant_circuits[device.name], rig.sources["devices"][device.name]
    circuit, drift = before, device.drift
    if drift != _drift_in(rig, device.name) or any(tables[key] != own[key] for key in PLANT_FILES):
        machine, drive = (tables[key] for key in PLANT_FILES)
        circuit = read_plant(machine, drive, rig.library, accounts=rig.accounts, before=before, drift=drift)
    return circuit, _arrays(rig, device, circuit)


def _drift_in(rig: Rig, device: str) -> Any:
    """The drift of a simulated device as it is in this rig; None if it has none."""
    return next(each.drift for each in rig.devices if each.name == device)


def _arrays(rig: Rig, device: Device, circuit: PlantCircuit) -> PlantArrays:
    """A simulated device with this circuit, as it begins."""
    if device in rig.devices and circuit.packed.names == rig.plant_circuits[device.name].packed.names:
        return on_circuit(rig.first_plants[device.name], circuit.packed)  # with the same sensors and actuators
    return plant_of(device, circuit, 1.0 / rig.settings.loop.rate)
