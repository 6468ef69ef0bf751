"""The rig of a variant is as if it were assembled anew, bit for bit; its numbers are written in place if possible."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from study_bench import lift_files, replace_in

from hilserver.errors import ConfigurationError
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.rig.variants import assemble_variant
from hilserver.studies.varied_rig import RigValues

BAR = 1e5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lift_files(tmp_path)
    return tmp_path


def test_a_variant_is_as_if_it_were_assembled_anew(folder: Path) -> None:
    """Whatever is changed, every array is the same, bit for bit; so are its tables, and the reason if it can't be."""
    rig = load_rig(folder / "rigs/lift.toml")
    values, assembled = RigValues(rig), list[tuple[Rig, Rig]]()
    known = {key: each.value for key, each in values.known.items()}
    for keys in (
        ("machine.load.mass", "machine.fluid.air_fraction"),
        ("drive.valve_A.f90", "sensors.p_A.gain", "actuators.valve_A.delay"),
        ("circuit.relief.opening_pressure", "sensors.x.noise"),
        ("circuit.fluid.air_fraction", "told.valves.A.f90"),
        ("unknowns.friction", "machine.load.mass"),
    ):
        changes = {key: 0.05 if key.startswith("unknowns.") else 1.1 * known[key] + 2e-3 for key in keys}
        variant = values.changed(changes)
        assembled.append((variant, assemble(variant.sources, rig.file, rig.library)))
    for variant, anew in assembled:
        assert variant.plan.block.tobytes() == anew.plan.block.tobytes()
        assert variant.packed.value.tobytes() == anew.packed.value.tobytes()
        assert variant.packed.index.tobytes() == anew.packed.index.tobytes()
        assert [np.asarray(each).tobytes() for each in variant.first_plants["rig"]] == [
            np.asarray(each).tobytes() for each in anew.first_plants["rig"]
        ]
        plants = [each.plant_circuits["rig"] for each in (variant, anew)]
        assert plants[0].packed.value.tobytes() == plants[1].packed.value.tobytes()
        assert variant.sources == anew.sources
        assert (variant.settings, variant.layout, variant.devices) == (anew.settings, anew.layout, anew.devices)
        assert variant.circuit.source == anew.circuit.source


def test_numbers_are_written_in_place(folder: Path) -> None:
    """Wherever that is possible: otherwise the tests beside this one say nothing of it."""
    replace_in(
        folder / "circuits/lift.toml",
        ('opening_pressure = "150 bar"', 'opening_pressure = "=opening"'),
        ("[components.tank]", '[parameters]\nopening = "150 bar"\n[components.tank]'),
    )
    rig = load_rig(folder / "rigs/lift.toml")
    values = RigValues(rig)
    mass, pressure = "machine.load.mass", "circuit.relief.opening_pressure"
    changes = {pressure: 140 * BAR, "sensors.p_A.delay": 2e-3, "drive.valve_A.f90": 70.0, mass: 300.0}
    found = values._in_place(changes)
    assert found is not None
    kept = [new is old for new, old in zip(found.circuit.placed, values._expanded.circuit.placed, strict=True)]
    assert kept.count(False) == 1
    anew = assemble(found.sources, rig.file, rig.library)
    assert found.sources == anew.sources
    assert found.circuit.written == anew.circuit.written
    for one, other in ((found.packed, anew.packed), *((r.plant_circuits["rig"].packed for r in (found, anew)),)):
        assert one.value.tobytes() == other.value.tobytes()
    assert [np.asarray(each).tobytes() for each in found.first_plants["rig"]] == [
        np.asarray(each).tobytes() for each in anew.first_plants["rig"]
    ]
    assert values._in_place({mass: 300.0}) is not None
    for impossible in ({mass: -1.0}, {"sensors.p_A.delay": -1.0}, {"circuit.parameters.opening": 1e7}):
        assert values._in_place({**changes, **impossible}) is None
    assert rig.circuit.written == load_rig(rig.file).circuit.written


def test_a_variant_that_can_not_be_has_the_reason_that_its_files_would_have(folder: Path) -> None:
    """Also where the mistake is in one of two circuits that are joined."""
    rig = load_rig(folder / "rigs/lift.toml")
    tables = rig.sources["devices"]["rig"]
    for part, table in (
        ("drive", {"solver": {"substeps": 0}}),
        ("drive", {"components": {**tables["drive"]["components"], "valve_C": 1}}),
        ("machine", {"solvers": {}}),
    ):
        devices = {"rig": {**tables, part: {**tables[part], **table}}}
        with pytest.raises(ConfigurationError) as expected:
            assemble({**rig.sources, "devices": devices}, rig.file, rig.library)
        with pytest.raises(ConfigurationError) as refused:
            assemble_variant(rig, {**rig.sources, "devices": devices})
        assert refused.value.problems == expected.value.problems
