"""A component's Python that does not return while a study is prepared: the study ends, and names it."""

from __future__ import annotations

import itertools
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from study_bench import LEAKING, STUDY, leak, written_study

from hilserver.circuit.library import Library, circuit_library
from hilserver.components.base import Fluid
from hilserver.errors import HilserverError
from hilserver.studies import own_calls
from hilserver.studies.own_calls import LOOKS, _NoReturnError, _Watch, ending_own_calls
from hilserver.studies.settings import load_study
from hilserver.studies.study import prepared

CIRCUIT = LEAKING.replace("odd = 1.0", "odd = 2.0")
SLEEPS, COMPUTES = "time.sleep(100.0)", "while True: self.odd"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given up soon; without the main thread the tests would hang."""
    assert threading.current_thread() is threading.main_thread()
    monkeypatch.setattr(own_calls, "LIMIT", 0.5)


def hanging(call: str, head: str = "import time") -> str:
    """The file of a component that makes this call where ``odd`` is large, and does not let errors out."""
    lines = f"if self.odd > 2.5:\n    try:\n        {call}\n    except Exception:\n        pass\n"
    return leak(lines + 'return {"G": 1e-12 * self.odd}', head)


def files(folder: Path, own: str, circuit: str = CIRCUIT, study: str = STUDY) -> Path:
    """A study of a circuit with this component."""
    (folder / "own.py").write_text(own)
    return written_study(folder, study, circuit)


def imported(folder: Path) -> Library:
    """The components of these files, imported now: on a busy machine, that takes as long as a call may take here."""
    return circuit_library(folder / "emptying.toml")


@pytest.mark.parametrize("hang", [SLEEPS, COMPUTES])
def test_parameters_that_hang_when_a_study_is_read_are_named(hang: str, tmp_path: Path) -> None:
    file = files(tmp_path, hanging(hang), CIRCUIT.replace("odd = 2.0", "odd = 3.0"))
    imported(tmp_path)
    said = (
        r"own\.py, line 14: Leak\.parameters\(\) of a component of type leak with odd = 3\.0 has not returned "
        r"after 0\.5 s"
    )
    with pytest.raises(HilserverError, match=said):
        load_study(file)


def test_parameters_that_hang_with_other_values_when_a_study_is_prepared_are_named(tmp_path: Path) -> None:
    study = STUDY.replace('"capillary.nominal_flow.flow" = "± 20 %"', '"leak.odd" = "± 50 %"')
    file = files(tmp_path, hanging(SLEEPS), study=study)
    imported(tmp_path)
    loaded = load_study(file)
    with pytest.raises(HilserverError, match=r"own\.py, line 14: .* with odd = 3\.0 has not returned"):
        prepared(loaded)


def test_a_file_that_hangs_is_named(tmp_path: Path) -> None:
    with pytest.raises(HilserverError, match=r"own\.py, line 2: the file has not returned after 0\.5 s\."):
        load_study(files(tmp_path, "import time\ntime.sleep(100.0)\n"))


def test_many_calls_are_not_one_long_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at every 0.4 s: two calls, the second of which does not end."""
    files(tmp_path, hanging("calls.append(sys._getframe())", head="import sys\ncalls = []"))
    library = imported(tmp_path)
    kind: Any = library.types["leak"]
    for odd in (3.0, 4.0):
        kind(odd=odd).parameters(Fluid())
    first, second = sys.modules[kind.__module__].calls
    times = itertools.count(0.0, 0.4)
    monkeypatch.setattr(own_calls, "monotonic", lambda: next(times))
    watch = _Watch(limit=0.5)
    for call in (first, second, None, second, second):
        watch.look(0, call)
    with pytest.raises(_NoReturnError, match=r"odd = 4\.0 has not returned"):
        watch.look(0, second)


def test_the_process_is_left_as_it_was() -> None:
    before = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    with ending_own_calls():
        assert signal.getitimer(signal.ITIMER_REAL)[1] == 0.5 / LOOKS
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)) == before
