"""A component's Python that does not return while a study is prepared: the study ends, and names it."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
from study_bench import EMPTYING, STUDY, written_study

from hilserver.circuit.library import circuit_library
from hilserver.errors import HilserverError
from hilserver.simulation.circuit_run import read_circuit_file
from hilserver.studies import own_calls
from hilserver.studies.own_calls import LOOKS, ending_own_calls
from hilserver.studies.settings import load_study
from hilserver.studies.study import prepared

LEAK = """
import time
from hilserver.components.base import Component, Fluid, Parameters, kernel
from hilserver.units import Number


class Leak(Component):
    type_name = "leak"
    hydraulic = ("A", "B")
    odd: Number = 1.0

    def parameters(self, fluid: Fluid) -> Parameters:
        if self.odd > 2.5:
            try:
                {hang}
            except Exception:
                pass
        return {{"G": 1e-12 * self.odd}}


@kernel(Leak)
def leak(p_A, p_B, G):
    q_B = G * (p_A - p_B)
    q_A = -q_B
    return q_A, q_B
"""
CIRCUIT = f"""
library = ["own.py"]
{EMPTYING}
[components.leak]
type = "leak"
ports = {{ A = "vessel", B = "tank" }}
odd = 2.0
"""
SLEEPS, COMPUTES = "time.sleep(100.0)", "while True: self.odd"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given up soon; without the main thread the tests would hang."""
    assert threading.current_thread() is threading.main_thread()
    monkeypatch.setattr(own_calls, "LIMIT", 0.2)


def files(folder: Path, own: str, circuit: str = CIRCUIT, study: str = STUDY) -> Path:
    (folder / "own.py").write_text(own)
    return written_study(folder, study, circuit)


@pytest.mark.parametrize("hang", [SLEEPS, COMPUTES])
def test_parameters_that_hang_when_a_study_is_read_are_named(hang: str, tmp_path: Path) -> None:
    file = files(tmp_path, LEAK.format(hang=hang), CIRCUIT.replace("odd = 2.0", "odd = 3.0"))
    said = (
        r"own\.py, line 15: Leak\.parameters\(\) of a component of type leak with odd = 3\.0 has not ended after 0\.2 s"
    )
    with pytest.raises(HilserverError, match=said):
        load_study(file)


def test_parameters_that_hang_with_other_values_when_a_study_is_prepared_are_named(tmp_path: Path) -> None:
    study = STUDY.replace('"capillary.nominal_flow.flow" = "± 20 %"', '"leak.odd" = "± 50 %"')
    loaded = load_study(files(tmp_path, LEAK.format(hang=SLEEPS), study=study))
    with pytest.raises(HilserverError, match=r"own\.py, line 15: .* with odd = 3\.0 has not ended"):
        prepared(loaded)


def test_a_file_that_hangs_is_named(tmp_path: Path) -> None:
    with pytest.raises(HilserverError, match=r"own\.py, line 2: the file has not ended after 0\.2 s\."):
        load_study(files(tmp_path, "import time\ntime.sleep(100.0)\n"))


def test_many_short_calls_are_not_one_long_call(tmp_path: Path) -> None:
    files(tmp_path, LEAK.format(hang="time.sleep(0.06)"), CIRCUIT.replace("odd = 2.0", "odd = 3.0"))
    file = tmp_path / "emptying.toml"
    circuit = read_circuit_file(file, circuit_library(file))
    (leak,) = (placed for placed in circuit.placed if placed.name == "leak")
    with ending_own_calls():
        for _ in range(5):
            assert circuit.parameters_of(leak) == {"G": 3e-12}


def test_the_process_is_left_as_it_was() -> None:
    before = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    with ending_own_calls():
        assert signal.getitimer(signal.ITIMER_REAL)[1] == 0.2 / LOOKS
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)) == before
