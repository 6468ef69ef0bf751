"""Datasheet values as parameters of an FMU: set there, they are what a new export of the changed circuit would be."""

from __future__ import annotations

from pathlib import Path

import fmpy
import numpy as np
import pytest
from fmpy.fmi2 import FMU2Slave
from fmu_bench import CONFIG, NAMES, TICK, exported, in_motion

from hilserver.circuit.datasheet import datasheet_values
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import Circuit, read_circuit
from hilserver.circuit.pack import pack
from hilserver.compiler import standard_program
from hilserver.fmu.datasheet import parameters
from hilserver.fmu.variables import Causality, Variable
from hilserver.numerics.arrays import Floats
from hilserver.simulation.circuit_run import read_circuit_file
from hilserver.simulation.packed_run import run_packed

SETTABLE = (Causality.TUNABLE, Causality.FIXED)


def circuit_of(name: str) -> Circuit:
    return read_circuit_file(CONFIG / f"circuits/{name}.toml", standard_library())


def other_values(circuit: Circuit, variables: list[Variable]) -> tuple[dict[str, float], Circuit]:
    """Each of the parameters by name, 4 % higher where its range allows it, and the circuit read with these values."""
    settable = {each.name: each for each in variables if each.kind in SETTABLE}
    found, changed = dict[str, float](), circuit
    for given in datasheet_values(circuit):
        if (parameter := settable.get(given.key)) is not None:
            x = given.value * 1.04 if given.value else 0.04 * parameter.upper
            found[given.key] = x if parameter.lower <= x <= parameter.upper else given.value
            changed = given.changed(changed, found[given.key])
    return found, read_circuit(changed.source, standard_library())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_all_parameters_of_a_circuit_together(name: str) -> None:
    """Changed at once, the packed numbers are those that follow from the places and factors of the parameters."""
    circuit = circuit_of(name)
    packed = pack(circuit, standard_library())
    variables = parameters(circuit, packed, standard_library())
    found, changed = other_values(circuit, variables)
    n, expected = len(packed.names), packed.value.copy()
    for each in variables:
        for place, factor in zip(each.places, each.factors, strict=True):
            if place >= n and each.name in found:
                expected[place - n] = found[each.name] * factor
    again = pack(changed, standard_library())
    assert np.array_equal(again.index, packed.index)
    np.testing.assert_allclose(again.value, expected, rtol=1e-14)
    assert len(found) >= 10
    assert (again.value != packed.value).sum() >= len(found)


def run_with(
    fmu_folder: Path, values: dict[str, float], inputs: list[str], given: Floats, outputs: list[str]
) -> Floats:
    """The outputs of an FMU whose parameters are set before its initialization."""
    description = fmpy.read_model_description(str(fmu_folder), validate=False)
    references = {each.name: each.valueReference for each in description.modelVariables}
    identifier = description.coSimulation.modelIdentifier
    fmu = FMU2Slave(guid=description.guid, unzipDirectory=str(fmu_folder), modelIdentifier=identifier)
    fmu.instantiate()
    fmu.setupExperiment(startTime=0.0)
    fmu.enterInitializationMode()
    fmu.setReal([references[name] for name in values], list(values.values()))
    fmu.exitInitializationMode()
    rows = []
    for k, row in enumerate(given):
        fmu.setReal([references[name] for name in inputs], row.tolist())
        fmu.doStep(k * TICK, TICK)
        rows.append(fmu.getReal([references[name] for name in outputs]))
    assert fmu.getReal([references[name] for name in values]) == list(values.values())
    fmu.terminate()
    fmu.freeInstance()
    return np.array(rows)


def test_a_changed_fmu_runs_as_the_changed_circuit(tmp_path: Path) -> None:
    """Pressures to 1e-6 of the largest: a last digit of a parameter makes such a difference over a second."""
    fmu = exported(CONFIG / "circuits/verification.toml", tmp_path)
    values, changed = other_values(circuit_of("verification"), list(fmu.exported.variables))
    given = in_motion(1, 1000)
    found = run_with(fmu.folder, values, fmu.inputs, given, fmu.outputs)
    packed = pack(changed, standard_library())
    rows = run_packed(standard_program(), packed, TICK, fmu.inputs, given)
    expected = rows[:, [packed.names.index(name) for name in fmu.outputs]]
    scale = np.abs(expected).max(axis=0) + 1e-30
    assert np.abs((found - expected) / scale).max() < 1e-6
    before = run_with(fmu.folder, {}, fmu.inputs, given, fmu.outputs)
    assert np.abs((found - before) / scale).max() > 0.01


def test_start_values_change_nothing(tmp_path: Path) -> None:
    """An importer may set all parameters to the values that they have."""
    fmu = exported(CONFIG / "circuits/verification.toml", tmp_path)
    values = {each.name: each.start for each in fmu.exported.variables if each.kind in SETTABLE}
    assert len(values) > 20
    given = in_motion(1, 200)
    outputs = [run_with(fmu.folder, some, fmu.inputs, given, fmu.outputs) for some in ({}, values)]
    assert outputs[0].tobytes() == outputs[1].tobytes()


def test_a_parameter_of_the_verification_circuit() -> None:
    """The load's mass, and its weight, which follows from it; a pressure; what is fixed; an input set to a number."""
    circuit = circuit_of("verification")
    packed = pack(circuit, standard_library())
    found = {each.name: each for each in parameters(circuit, packed, standard_library())}
    mass = found["components.load.mass"]
    assert (mass.kind, mass.start, mass.unit, mass.factors) == (Causality.TUNABLE, 1000.0, "kg", (1.0, 9.81))
    assert mass.lower <= 200.0
    assert mass.upper >= 2000.0
    assert "moving mass" in mass.description or "mass" in mass.description
    assert found["components.load.gravity"].kind is Causality.CONSTANT  # the weight follows from the mass
    assert found["components.relief.opening_pressure"].kind is Causality.CONSTANT  # of a fitted curve
    assert found["components.pump.drive"].kind is Causality.TUNABLE
    start = found["nodes.rod.position"]
    assert (start.kind, start.start, start.unit) == (Causality.FIXED, 0.1, "m")
    assert start.upper <= 0.5  # the stroke
