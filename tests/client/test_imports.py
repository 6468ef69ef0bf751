"""What a client loads: a script that talks to a server starts in a moment, without the server's libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

HEAVY = {"matplotlib", "numba", "llvmlite", "pint", "pyarrow", "scipy"}
SERVER = {
    "circuit",
    "components",
    "mechanics",
    "numerics",
    "realtime",
    "record",
    "rig",
    "service",
    "simulation",
    "tick",
}


def loaded_by(code: str) -> set[str]:
    """Packages of other projects, and of hilserver ``hilserver.<room>``, that a fresh process has after this code."""
    shown = "; import sys; print(*{'.'.join(m.split('.')[: 1 + m.startswith('hilserver.')]) for m in sys.modules})"
    process = subprocess.run([sys.executable, "-c", code + shown], capture_output=True, text=True, check=True)
    return set(process.stdout.split())


CLIENTS = (
    "import hilserver.client",
    "import hilserver.client.plotjuggler",
    "from hilserver.protocol import accounts, address, commands, connection, parsing, published, running, topics",
    "from hilserver.protocol import description",
    "import hilserver.cli",
    "import hilserver.cli.switch; from hilserver.client import where, send",
    "import hilserver.cli.status; from hilserver.client import where, status",
)


def test_a_client_loads_nothing_of_the_server() -> None:
    """In one process, which has loaded what any of them loads."""
    loaded = loaded_by("; ".join(CLIENTS))
    assert "pydantic" in loaded
    assert not loaded & HEAVY
    assert not loaded & {f"hilserver.{room}" for room in SERVER}


def test_a_stop_from_the_command_line_loads_next_to_nothing() -> None:
    """``hilserver send stop`` has to be fast: without an event loop, NumPy or the models of all messages."""
    code = "import sys; sys.argv = ['hilserver']; from hilserver.cli import program; program('send'); "
    loaded = loaded_by(code + "import hilserver.protocol.stopping, hilserver.protocol.place")
    assert {"paho", "hilserver.protocol"} <= loaded
    assert not loaded & (HEAVY | {"aiomqtt", "asyncio", "numpy", "rich"})
    assert not {room for room in loaded if room.startswith("hilserver.")} - {
        *("hilserver.cli", "hilserver.errors", "hilserver.protocol", "hilserver.toml")
    }


def test_what_a_run_forks_has_loaded_nothing_of_its_supervisor() -> None:
    """It would stay in the memory of the real-time process, which is locked, and a second thread forbids the fork."""
    code = (
        "import sys; from hilserver.cli import program; program('run'); import hilserver.service.forking as forking; "
    )
    loaded = loaded_by(code + "forking.fork = lambda module: None; assert len(forking.fork_usual_children()) == 3")
    assert {"numpy", "hilserver.realtime"} <= loaded
    assert not loaded & (HEAVY | {"aiomqtt", "asyncio", "paho", "ssl"})


SIMULATION = f"""
from pathlib import Path
from tempfile import TemporaryDirectory

from hilserver.rig.build import load_rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.replay import replay_log

with TemporaryDirectory() as folder:
    log = Path(folder) / "run.arrow"
    with LockstepRun(load_rig(Path("{ROOT}/config/rigs/demo.toml")), log) as run:
        run.start()
        run.swap(run.rig.circuit)
        run.run(50)
    assert replay_log(log).ok"""


@pytest.mark.parametrize(
    "code",
    [
        "import hilserver.rig.build",
        "import hilserver.service.supervisor",
        "import hilserver.realtime.process, hilserver.realtime.simulated_device",
        "import hilserver.realtime.compile",
        SIMULATION,
    ],
    ids=["rig", "supervisor", "processes", "compile", "simulation"],
)
def test_running_the_compiled_program_loads_no_compiler(code: str) -> None:
    """A rig is simulated, recorded and replayed without one: what is not loaded need not be installed."""
    loaded = loaded_by(code)
    assert {"numpy", "hilserver.tick"} <= loaded
    assert not loaded & {"numba", "llvmlite", "ziglang", "matplotlib", "pint"}


MARGINS = f"""
from pathlib import Path

from hilserver.compiler import compiled_program
from hilserver.margins.margins import margins
from hilserver.rig.build import load_rig

rig = load_rig(Path("{ROOT}/config/rigs/lift.toml"))
assert any(point.crossings for point in margins(rig, compiled_program(rig.library)).delay.points)"""
CHECK = f"""
from pathlib import Path

from hilserver.rig.build import load_rig
from hilserver.virtual_commissioning.before_arming import examined

assert not examined(load_rig(Path("{ROOT}/config/rigs/lift.toml")), ["feedback"]).refusals"""


@pytest.mark.slow
@pytest.mark.parametrize("code", [MARGINS, CHECK], ids=["margins", "check before arming"])
def test_what_a_server_calculates_loads_no_library_of_offline_work(code: str) -> None:
    """A part of SciPy takes up to a second and 60 MB in a process, Matplotlib half of that."""
    shown = "\nimport sys; print(*{m for m in sys.modules if m.split('.')[0] in ('scipy', 'matplotlib', 'jinja2')})"
    process = subprocess.run([sys.executable, "-c", code + shown], capture_output=True, text=True, check=True)
    parts = {".".join(name.split(".")[:2]) for name in process.stdout.split()}
    assert parts <= {
        "scipy",
        "scipy.__config__",
        "scipy.version",
        "scipy._lib",
        "scipy._cyutility",
        "scipy._distributor_init",
    }


def test_the_test_detects_loaded_modules() -> None:
    assert {"numba", "hilserver.rig"} <= loaded_by("import hilserver.rig.build, hilserver.compiler.own")


def test_the_server_starts_its_processes_before_it_imports_the_simulation() -> None:
    """Margins and the check before arming need it: they are imported while the processes start."""
    loaded = loaded_by("import hilserver.service.supervisor")
    assert "hilserver.service" in loaded
    assert not {"hilserver.simulation", "hilserver.fidelity", "hilserver.virtual_commissioning"} & loaded
