"""A circuit by itself: hilserver simulate with a circuit file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from hilserver.circuit.library import standard_library
from hilserver.errors import ConfigurationError, HilserverError
from hilserver.simulation.circuit_report import write_run
from hilserver.simulation.circuit_run import CircuitRun, is_circuit_file, run_circuit_file, step_note

ROOT = Path(__file__).parents[2]
CIRCUIT = """
description = "A flow fills a volume"
[components.source]
type = "flow_source"
ports = { P = "line", T = "tank" }
command = "demand"
flow = "6 l/min"
[components.line]
type = "volume"
ports = { P = "line" }
volume = "1 l"
[components.tank]
type = "tank"
ports = { T = "tank" }
"""
CYCLE = """
repeat = true
[inputs.demand]
shape = "hold"
points = [["0 s", 1], ["0.1 s", 0], ["0.2 s", 0]]
"""


@pytest.fixture
def circuit(tmp_path: Path) -> Path:
    (tmp_path / "filling.toml").write_text(CIRCUIT)
    (tmp_path / "cycle.toml").write_text(CYCLE)
    return tmp_path / "filling.toml"


def run(circuit: Path, duration: float | None = None) -> CircuitRun:
    return run_circuit_file(circuit, standard_library(), circuit.parent / "cycle.toml", duration)


def refused(circuit: Path, cycle: Path | None = None) -> str:
    with pytest.raises(ConfigurationError) as error:
        run_circuit_file(circuit, standard_library(), cycle)
    return str(error.value)


def test_inputs_follow_the_cycle_and_repeat(circuit: Path) -> None:
    """6 l/min into 1 l for 0.1 s of each 0.2 s: 150 bar each time."""
    result = run(circuit, 0.4)
    assert result.inputs == ("demand",)
    assert result.time[[0, -1]] == pytest.approx([1e-3, 0.4])
    at = [result.series["line.p"][round(t * 1000) - 1] / 1e5 for t in (0.05, 0.1, 0.2, 0.3, 0.4)]
    assert at == pytest.approx([75, 150, 150, 300, 300], rel=1e-6)
    assert run(circuit).time[-1] == pytest.approx(0.2)


def test_a_circuit_with_signals_of_its_own_needs_no_cycle(circuit: Path) -> None:
    circuit.write_text(CIRCUIT + '[components.demand]\ntype = "step_signal"\nsignal = "demand"\nstart = "1 s"\n')
    result = run_circuit_file(circuit, standard_library())
    assert result.time[-1] == pytest.approx(10.0)
    assert result.series["line.p"][1999] / 1e5 == pytest.approx(1500, rel=1e-3)


@pytest.mark.parametrize(("suffix", "read"), [("csv", pyarrow.csv.read_csv), ("parquet", pyarrow.parquet.read_table)])
def test_written_values_are_those_of_the_run(circuit: Path, suffix: str, read: object) -> None:
    assert callable(read)
    result = run(circuit)
    page, *_, file = write_run(result, circuit.parent / "out", suffix)
    assert "<svg" in page.read_text()
    table = read(file)
    assert table.column_names[0] == "time"
    assert {"line.p", "source.q_P", "demand"} <= set(table.column_names)
    assert np.array_equal(table["line.p"].to_numpy(), result.series["line.p"])
    with pytest.raises(HilserverError, match="Did you mean csv"):
        write_run(result, circuit.parent / "out", "cvs")


def test_mismatched_cycles_and_circuits_are_refused(circuit: Path) -> None:
    assert 'signal "demand" is not set by any component: set it with a work cycle (--cycle FILE)' in refused(circuit)
    cycle = circuit.parent / "cycle.toml"
    cycle.write_text(CYCLE.replace("demand", "demant"))
    assert 'inputs.demant: "demant" is not an input of' in refused(circuit, cycle)
    assert "Did you mean demand?" in refused(circuit, cycle)
    cycle.write_text(CYCLE.replace("hold", "jump"))
    assert "cycle.toml:4: inputs.demand.shape" in refused(circuit, cycle)
    lift = ROOT / "config/circuits/lift.toml"
    assert "rig.A is a port of the real machine" in refused(lift, ROOT / "config/cycles/lift.toml")


def test_a_step_that_is_too_long_is_reported(circuit: Path) -> None:
    """10 cm³ before an orifice: the note names the node and the substeps that it takes."""
    way = '[components.way]\ntype = "orifice"\nports = { A = "line", B = "tank" }\ndiameter = "3 mm"\n'
    circuit.write_text(CIRCUIT.replace("1 l", "10 cm^3") + way)
    note = step_note(run(circuit))
    assert note is not None
    assert "too long for rk4: line.content changes within" in note
    needed = int(note.split("at least ")[1].split()[0])
    circuit.write_text(
        f"[solver]\nsubsteps = {needed}\n{circuit.read_text()}".replace('description = "A flow', '# "A flow')
    )
    assert step_note(run(circuit)) is None


@pytest.mark.slow
def test_command_line(circuit: Path) -> None:
    def command(*arguments: object) -> subprocess.CompletedProcess[str]:
        line = [str(Path(sys.executable).parent / "hilserver"), "simulate", *map(str, arguments)]
        return subprocess.run(line, cwd=circuit.parent, capture_output=True, text=True, timeout=120)

    said = command(circuit, "--cycle", "cycle.toml", "--output", "out")
    assert (said.returncode, said.stderr) == (0, "")
    assert "filling: 0.2 s" in said.stdout
    assert sorted(path.name for path in (circuit.parent / "out").iterdir()) == [
        f"filling{end}" for end in ("-circuit.svg", "-signals.png", ".csv", ".html", ".json", ".md")
    ]
    for arguments, text in (
        ((circuit, "--strategy", "inverse_lag"), "--strategy does not apply to a circuit file"),
        ((ROOT / "config/rigs/demo.toml", "--cycle", "cycle.toml"), "--cycle does not apply to a rig file"),
        ((circuit,), "1 problem. Nothing was changed."),
    ):
        said = command(*arguments)
        assert (said.returncode, said.stdout) == (2, "")
        assert text in said.stderr


def test_rig_and_circuit_files_are_distinguished(circuit: Path) -> None:
    assert is_circuit_file(circuit)
    assert not is_circuit_file(ROOT / "config/rigs/demo.toml")
    with pytest.raises(ConfigurationError, match="no such file"):
        is_circuit_file(circuit.parent / "none.toml")
