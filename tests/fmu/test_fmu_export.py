"""The export of FMUs: the command, the file, its description; a circuit for a rig; what can't be exported."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import fmpy
import numpy as np
import pytest
from command_line import Command
from fmpy.validation import validate_fmu
from fmu_bench import CONFIG, TICK, exported, in_fmpy, in_hilserver, in_motion

from hilserver.fmu.description import base_units
from hilserver.units import dimensional

CIRCUIT = CONFIG / "circuits/verification.toml"


def test_the_command_says_what_the_fmu_has(hilserver: Command, tmp_path: Path) -> None:
    said = hilserver("export", CIRCUIT, tmp_path / "a.fmu", "--fmi", "3.0", "--tick", "2 ms")
    assert said.code == 0, said.err
    assert "FMI 3.0, model exchange and co-simulation; inputs: 1, outputs: 27." in said.out
    assert "values, 29 can be changed" in said.out
    description = fmpy.read_model_description(str(tmp_path / "a.fmu"))
    assert description.fmiVersion == "3.0"
    assert float(description.defaultExperiment.stepSize) == 2e-3
    assert validate_fmu(str(tmp_path / "a.fmu")) == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("a.zip",), "the name of an FMU ends with .fmu"),
        (("a.fmu", "--fmi", "1.0"), "choose 2.0 or 3.0"),
        (("a.fmu", "--tick", "2 s"), "outside the range"),
        (("a.fmu", "--tick", "2 bar"), "--tick"),
        (("a.fmu", "--every", "2"), "--every does not apply to a circuit file"),
        (("nowhere/a.fmu",), "can't be written"),
    ],
)
def test_what_is_wrong_is_said(words: tuple[str, ...], problem: str, hilserver: Command, tmp_path: Path) -> None:
    said = hilserver("export", CIRCUIT, tmp_path / words[0], *words[1:])
    assert said.code == 2
    assert problem in said.err
    assert list(tmp_path.iterdir()) == []


def test_options_of_circuits_are_refused_for_logs(hilserver: Command, tmp_path: Path) -> None:
    said = hilserver("export", tmp_path / "log.arrow", tmp_path / "a.csv", "--fmi", "2.0")
    assert said.code == 2
    assert "--fmi does not apply to a log" in said.err


def test_a_circuit_with_errors_is_not_exported(hilserver: Command, tmp_path: Path) -> None:
    text = CIRCUIT.read_text().replace('stroke = "500 mm"', 'stroke = "500 bar"')
    (tmp_path / "wrong.toml").write_text(text)
    said = hilserver("export", tmp_path / "wrong.toml", tmp_path / "a.fmu")
    assert said.code == 2
    assert "components.cylinder.stroke" in said.err
    assert not (tmp_path / "a.fmu").exists()


def test_own_components_are_refused(hilserver: Command, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("""
from hilserver.components.base import Component, kernel
from hilserver.units import LeakageCoefficient
class Leak(Component):
    type_name = "my_leak"
    hydraulic = ("A", "B")
    conductance: LeakageCoefficient = "1 l/min/bar"
    def parameters(self, fluid):
        return {"G": self.conductance}
@kernel(Leak)
def leak(p_A, p_B, G):
    q_B = G * (p_A - p_B)
    q_A = -q_B
    return q_A, q_B
""")
    table = '[components.leak]\ntype = "my_leak"\nports = { A = "A", B = "B" }\n'
    (tmp_path / "leaky.toml").write_text(f'library = ["own.py"]\n{CIRCUIT.read_text()}\n{table}')
    said = hilserver("export", tmp_path / "leaky.toml", tmp_path / "a.fmu")
    assert said.code == 2
    assert "components.leak" in said.err
    assert "my_leak is a component of your own" in said.err


def test_the_same_circuit_gives_the_same_file(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    one, other = (exported(CIRCUIT, tmp_path / folder).file.read_bytes() for folder in ("a", "b"))
    assert one == other


def test_contents_of_the_file(tmp_path: Path) -> None:
    """The library needs the C library only, and exports the functions of FMI only."""
    fmu = exported(CIRCUIT, tmp_path)
    with zipfile.ZipFile(fmu.file) as archive:
        assert set(archive.namelist()) == {
            "modelDescription.xml",
            "binaries/linux64/verification.so",
            "resources/circuit.bin",
            "documentation/licenses/license.txt",
        }
    (library,) = fmu.folder.glob("binaries/*/*.so")
    symbols = subprocess.run(["nm", "-D", library], capture_output=True, text=True)
    if symbols.returncode == 0:
        defined = {line.split()[-1] for line in symbols.stdout.splitlines() if " T " in line}
        assert len(defined) > 100
        assert all(name.startswith(("fmi2", "fmi3")) for name in defined)
        needed = {line.split()[-1] for line in symbols.stdout.splitlines() if " U " in line}
        assert all("@GLIBC_2." in name for name in needed)


@pytest.mark.parametrize("fmi", ["2.0", "3.0"])
def test_units_and_descriptions(fmi: str, tmp_path: Path) -> None:
    description = fmpy.read_model_description(str(exported(CIRCUIT, tmp_path, fmi).file))
    variables = {each.name: each for each in description.modelVariables}
    pressure, stroke = variables["supply.p"], variables["components.cylinder.stroke"]
    assert (pressure.causality, pressure.unit, pressure.displayUnit) == ("output", "Pa", "bar")
    assert pressure.description == "pressure of node supply, gauge"
    assert (stroke.causality, stroke.variability, float(stroke.start), stroke.unit) == (
        "parameter",
        "tunable",
        0.5,
        "m",
    )
    assert "cylinder (cylinder)" in stroke.description
    assert variables["relief.q_P"].description == "flow of relief (relief_valve) into the node at port P"
    assert variables["joystick"].causality == "input"
    assert all(each.description for each in description.modelVariables)
    units = {unit.name: unit for unit in description.unitDefinitions}
    assert (units["Pa"].baseUnit.kg, units["Pa"].baseUnit.m, units["Pa"].baseUnit.s) == (1, -1, -2)
    assert {each.name: each.factor for each in units["Pa"].displayUnits} == {"bar": 1e-5}


@pytest.mark.parametrize("unit", ["Pa", "m^3/s", "N", "W", "N*m", "kg*m^2", "m^3/(s*Pa)", "1/s", "N*s/m"])
def test_base_units_are_those_of_the_unit(unit: str) -> None:
    """A product of powers of the base units, converted back by the units of the configuration."""
    powers = base_units(unit)
    assert powers
    text = "*".join(f"{name}^{power}" for name, power in powers.items())
    assert dimensional(f"1 {text}") == dimensional(f"1 {unit}")


def test_a_circuit_for_a_rig_takes_the_machines_pressures(tmp_path: Path) -> None:
    """Pressures at the ports are inputs, mean flows into the machine outputs."""
    fmu = exported(CONFIG / "circuits/lift.toml", tmp_path)
    assert fmu.inputs == ["rig.A.p", "rig.B.p", "joystick"]
    assert {"rig.A.q", "rig.B.q"} <= set(fmu.outputs)
    assert validate_fmu(str(fmu.file)) == []
    given = in_motion(3, 500)
    given[:, :2] = 50e5 + 20e5 * given[:, :2]
    expected = in_hilserver(fmu.circuit, fmu.inputs, given, fmu.outputs)
    assert np.abs(expected[:, fmu.outputs.index("rig.A.q")]).max() > 1e-5
    assert in_fmpy(fmu, given).tobytes() == expected.tobytes()


def test_communication_steps_of_any_size(tmp_path: Path) -> None:
    """Ten ticks at once give the bits of single ones; 0.7 ticks nearly the same values at the same time."""
    fmu = exported(CIRCUIT, tmp_path)

    def final(step: float) -> list[float]:
        found = fmpy.simulate_fmu(
            str(fmu.folder),
            stop_time=0.07,
            output_interval=step,
            fmi_type="CoSimulation",
            output=fmu.outputs,
            start_values={"joystick": 0.6},
            validate=False,
        )
        assert found["time"][-1] == pytest.approx(0.07, abs=1e-9)
        return list(found[-1])[1:]

    whole, single, odd = final(10 * TICK), final(TICK), final(0.7 * TICK)
    assert whole == single
    assert odd != single
    scale = np.abs(single) + 1e-12
    assert np.abs((np.array(odd) - single) / scale)[[fmu.outputs.index(n) for n in ("supply.p", "rod.x")]].max() < 1e-4
