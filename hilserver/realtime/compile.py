"""Compiles all that a real-time run needs, before its processes start: else each would compile the same, all at once.

``python -m hilserver.realtime.compile SETUP`` and ``... mechanisms``: two parts, for two processors.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numba

from hilserver.circuit.library import library_of
from hilserver.circuit.program import COMPLETE, build, compile_mechanisms
from hilserver.realtime.setup import read_setup
from hilserver.realtime.talk import say
from hilserver.tick.program import LINKED, calls_in_a_plant, calls_in_analysis, calls_in_the_loop

MECHANISMS = "mechanisms"


def fill_cache(setup_file: Path) -> None:
    """Compile all that a real-time run needs, but for the mechanisms' machine code; nothing is called."""
    setup = read_setup(setup_file)
    program = build(library_of(setup.own), LINKED, to_call=False)
    calls = calls_in_the_loop(setup.plan, setup.index, setup.value, setup.row) + calls_in_analysis(
        setup.index, setup.value
    )
    for arrays in setup.plants.values():
        calls += calls_in_a_plant(arrays, float(setup.plan.loop[0].dt))
    for name, arguments in calls:
        program.functions[name].compile(tuple(map(numba.typeof, arguments)))
    (program.folder / COMPLETE).touch()


if __name__ == "__main__":
    if sys.argv[1] == MECHANISMS:
        compile_mechanisms()
    else:
        fill_cache(Path(sys.argv[1]))
    say(ready=True)
