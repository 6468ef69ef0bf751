"""Fills the cache of compiled programs before the tests, two at a time: ``python tests/support/fill_cache.py``.

All tests and the processes that they start share it; else several would compile the same at the same time. What is in
the cache already is only loaded. The same holds for Python's own bytecode, which Python does not store everywhere
(``PYTHONDONTWRITEBYTECODE``): several hundred processes would each compile the modules that they import.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from own_library import rig_file, with_gap

from hilserver.bench.parts import RecordedInputs, tick_parts
from hilserver.realtime.compile import MECHANISMS
from hilserver.realtime.rig_setup import make_setup
from hilserver.realtime.setup import write_setup
from hilserver.rig.build import load_rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.replay import replay_log

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "config/rigs/demo.toml"


def python(*arguments: str | Path) -> None:
    """Run Python with these arguments, among them the modules of tests/support."""
    path = os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))
    subprocess.run(
        (sys.executable, *arguments), check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path}
    )


def fill(folder: Path) -> None:
    """The real-time programs of the standard library and of the page's own component; then what runs in lockstep."""
    rigs = {"standard": DEMO, "own": rig_file(folder)}
    setups = []
    for name, file in rigs.items():
        rig = load_rig(file)
        setups.append(folder / f"{name}.npz")
        write_setup(make_setup(rig, {}, rig.plants()), setups[-1])
    compiler = ("-m", "hilserver.realtime.compile")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda part: python(*compiler, part), (setups[0], MECHANISMS, setups[1])))
        list(pool.map(lambda file: python(__file__, file), rigs.values()))


def run_in_lockstep(file: Path) -> None:
    """Every loop that a simulation, a replay and a benchmark call."""
    rig = load_rig(file)
    with TemporaryDirectory() as folder:
        log = Path(folder) / "run.arrow"
        with LockstepRun(rig, log) as run:
            run.start()
            run.swap(rig.read_circuit(with_gap(rig.circuit.source)) if rig.library.own else rig.circuit)
            run.run(10)
        replay_log(log)
    if not rig.library.own:
        tick_parts(RecordedInputs.of(rig, 10), repeats=1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_in_lockstep(Path(sys.argv[1]))
    else:
        began = time.monotonic()
        print("Compiling what the tests share ...", flush=True)
        for package in ("hilserver", "drivers"):
            compileall.compile_dir(ROOT / package, quiet=1)
        with TemporaryDirectory() as temporary:
            fill(Path(temporary))
        print(f"... compiled or found in the cache: {time.monotonic() - began:.0f} s", flush=True)
