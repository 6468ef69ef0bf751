"""Compiles everything that a real-time run needs before its processes start; otherwise each would compile the same.

``python -m hilserver.realtime.compile SETUP`` and ``... mechanisms``: two parts, for two processors. If several servers
start at the same time, one compiles a part while the others wait, and then load it.
"""

from __future__ import annotations

import contextlib
import fcntl
import sys
from collections.abc import Iterator
from pathlib import Path

import numba

from hilserver.circuit.library import library_of
from hilserver.circuit.program import COMPLETE, build, compile_mechanisms, mechanisms_folder
from hilserver.realtime.reports import send_report
from hilserver.realtime.setup import read_setup
from hilserver.tick.program import LINKED, calls_in_a_plant, calls_in_analysis, calls_in_the_loop

MECHANISMS = "mechanisms"


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the lock of a cache folder; it is released when the process ends, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def fill_cache(setup_file: Path) -> None:
    """Compile everything that a real-time run needs, except the mechanisms' machine code; nothing is called."""
    setup = read_setup(setup_file)
    program = build(library_of(setup.own), LINKED, to_call=False)
    calls = calls_in_the_loop(setup.plan, setup.index, setup.value, setup.row)
    calls += calls_in_analysis(setup.index, setup.value)
    for arrays in setup.plants.values():
        calls += calls_in_a_plant(arrays, float(setup.plan.loop[0].dt))
    with only_one(program.folder):
        for name, arguments in calls:
            program.functions[name].compile(tuple(map(numba.typeof, arguments)))
        (program.folder / COMPLETE).touch()


if __name__ == "__main__":
    if sys.argv[1] == MECHANISMS:
        with only_one(mechanisms_folder()):
            compile_mechanisms()
    else:
        fill_cache(Path(sys.argv[1]))
    send_report(ready=True)
