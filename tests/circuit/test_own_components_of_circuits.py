"""Components of the user's own that a circuit file names, without a rig and as the circuit of a rig."""

from __future__ import annotations

import shutil
import subprocess
import sys
from math import exp
from pathlib import Path

import pytest
from own_library import OWN

from hilserver.circuit.library import circuit_library
from hilserver.circuit.model import read_circuit
from hilserver.errors import ConfigurationError
from hilserver.rig.build import load_rig
from hilserver.simulation import simulate
from hilserver.toml import read_toml

CONFIG = Path(__file__).parents[2] / "config"
CIRCUIT = """
library = ["my_components.py"]
[components.supply]
type = "pressure_source"
ports = { P = "supply" }
pressure = "100 bar"
[components.leak]
type = "annular_gap"
ports = { A = "supply", B = "chamber" }
diameter = "12 mm"
gap = "10 um"
length = "20 mm"
[components.chamber]
type = "volume"
ports = { P = "chamber" }
volume = "0.1 l"
"""


@pytest.fixture
def circuit(tmp_path: Path) -> Path:
    (tmp_path / "my_components.py").write_text(OWN)
    (tmp_path / "circuit.toml").write_text(CIRCUIT)
    return tmp_path / "circuit.toml"


def test_a_circuit_with_own_components_is_simulated(circuit: Path) -> None:
    """The gap passes 3.927e-15 m³/(s·Pa), see test_own_components: p rises as 100 bar (1 - exp(-t B G/V))."""
    run = simulate(circuit, until=1.0)
    assert run["leak.q_A"][0] == pytest.approx(-3.927e-15 * 100e5, rel=1e-3)
    assert run["chamber.p"][-1] == pytest.approx(100e5 * (1.0 - exp(-1.5e9 / 1e-4 * 3.927e-15)), rel=1e-3)


def test_the_commands_take_it(circuit: Path) -> None:
    for command in ("simulate", "check"):
        done = subprocess.run(
            [Path(sys.executable).with_name("hilserver"), command, circuit.name, "-o", "out"],
            cwd=circuit.parent,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_rig_gets_the_components_of_its_circuit(tmp_path: Path) -> None:
    shutil.copytree(CONFIG, tmp_path / "config")
    file = tmp_path / "config/circuits/lift.toml"
    (file.parent / "my_components.py").write_text(OWN)
    gap = '[components.leak]\ntype = "annular_gap"\nports = { A = "supply", B = "tank" }\n'
    values = 'diameter = "12 mm"\ngap = "10 um"\nlength = "20 mm"\n'
    file.write_text('library = ["my_components.py"]\n' + file.read_text() + gap + values)
    rig = load_rig(tmp_path / "config/rigs/demo.toml")
    (own,) = rig.library.own
    assert own.text == OWN
    assert rig.sources["library"] == [{"name": own.name, "text": OWN}]
    assert "library" not in rig.circuit.source
    assert rig.read_circuit(read_toml(file), "lift.toml").source == rig.circuit.source  # as in a switch to this file


@pytest.mark.parametrize(
    ("library", "expected"),
    [
        ('["no.py"]', "no.py: no such file."),
        ('"my_components.py"', 'circuit.toml:2: library: "my_components.py" is not a list of Python files'),
        ("[3]", "circuit.toml:2: library: [3] is not a list of Python files"),
    ],
)
def test_an_invalid_library_is_reported(circuit: Path, library: str, expected: str) -> None:
    circuit.write_text(CIRCUIT.replace('["my_components.py"]', library))
    with pytest.raises(ConfigurationError) as error:
        simulate(circuit)
    assert expected in str(error.value)


def test_a_file_that_is_not_loaded_is_refused_with_a_remedy(circuit: Path) -> None:
    """A switch can't bring Python into a running server."""
    library = circuit_library(circuit)
    source = read_toml(circuit)
    assert read_circuit(source, library, str(circuit)).placed
    with pytest.raises(ConfigurationError, match=r'library: "other\.py" is not loaded: a running server gets its'):
        read_circuit({**source, "library": ["other.py"]}, library, str(circuit))
