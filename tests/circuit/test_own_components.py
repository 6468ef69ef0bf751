"""Components of the user's own: from a file named in the rig, live, recorded and replayed; and what is refused."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core import event
from own_library import GAP, OWN, PAGE, page_file, rig_file, with_gap
from service_harness import Panel, Server, panel, read_log

from hilserver.circuit.library import library_of, standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.own import OwnFile
from hilserver.circuit.pack import pack
from hilserver.compiler.own import check_kernels
from hilserver.components.base import Fluid
from hilserver.errors import ConfigurationError
from hilserver.realtime.rig_setup import make_setup
from hilserver.realtime.setup import read_setup, write_setup
from hilserver.record.reader import LogReader
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.simulation.replay import replay_log

ROOT = Path(__file__).parents[2]


def values_of_the_last_circuit(log: Path) -> dict[str, Any]:
    segment = read_log(log).circuits[-1]
    return dict(zip(segment.version.names, segment.values.T, strict=True))


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    return load_rig(rig_file(tmp_path_factory.mktemp("own")))


# --- it works --------------------------------------------------------------------------------------------------------


def test_a_component_takes_at_most_40_lines() -> None:
    assert len(OWN.splitlines()) <= 40


def test_own_component_stands_beside_the_built_in_ones(rig: Rig) -> None:
    """Its flow by hand: pi·0.012·(1e-5)³/(12·0.04·0.02)·100e5 Pa = 3.927e-8 m³/s."""
    gap = rig.library.types["annular_gap"].model_validate({k: v for k, v in GAP.items() if k != "type"})
    assert set(rig.library.types) == {*standard_library().types, "annular_gap"}
    assert gap.parameters(Fluid())["G"] == pytest.approx(3.927e-8 / 100e5, rel=1e-3)
    assert "annular_gap" not in standard_library().types


@pytest.mark.slow
def test_live_switch_compiles_nothing_and_replays_without_the_file(rig: Rig, tmp_path: Path) -> None:
    """The demo's rig in lockstep, the gap switched in after 300 ticks; every bit again from the log alone."""
    log = tmp_path / "run.arrow"
    with LockstepRun(rig, log) as run:
        run.start()
        run.swap(rig.circuit)  # as the warm-up of a real run does
        run.run(300)
        with event.install_recorder("numba:compile") as compiled:
            run.swap(rig.read_circuit(with_gap(rig.circuit.source)))
            run.run(300)
        assert not compiled.buffer
        assert run.mode == "RUNNING"
    with event.install_recorder("numba:compile") as control:
        numba.njit(lambda x: x + 1.0)(1.0)
    assert control.buffer  # the recorder would have seen it
    (own,) = rig.library.own
    assert LogReader(log).header.configuration["library"] == [{"name": own.name, "text": OWN}]
    last = values_of_the_last_circuit(log)
    assert last["leak.q_A"] == pytest.approx(-3.927e-15 * (last["supply.p"] - last["tank.p"]), rel=1e-3)
    (rig.file.parent / "../my_components.py").unlink()
    result = replay_log(log)
    assert result.ok
    assert result.same_program
    assert result.compared >= 600
    assert (result.switches, result.differences, result.starts) == (2, (), ())


def test_every_process_gets_the_text_that_the_supervisor_has_read(rig: Rig, tmp_path: Path) -> None:
    write_setup(make_setup(rig, {}, rig.plants()), tmp_path / "setup.npz")
    library = library_of(read_setup(tmp_path / "setup.npz").own)
    assert [c.kernel.name for c in library.contracts] == [c.kernel.name for c in rig.library.contracts]


@pytest.mark.realtime
def test_own_component_in_real_time(tmp_path: Path) -> None:
    """A real server on the demo's rig: the gap is switched in over MQTT and its flow is in telemetry and log."""
    (tmp_path / "my_components.py").write_text(OWN)

    async def talk(server: Server) -> None:
        async with panel(server) as user:
            await user.run_cycle()
            await switch(user)

    async def switch(user: Panel) -> None:
        types = (await user.see("types"))["types"]
        assert {"annular_gap", "relief_valve"} <= types.keys()
        assert types["annular_gap"]["ports"] == ["A", "B"]
        assert types["annular_gap"]["values"]["gap"]["required"]
        circuit = with_gap((await user.see("circuit"))["source"])
        answer = await user.do("switch_circuit", circuit=circuit)
        assert answer["result"]["mode"] == "RUNNING"
        refused = await user.command("set_parameter", component="leak", set={"gap": "-1 um"})
        assert any("must be > 0" in text for text in refused["problems"])

    with Server(
        tmp_path, changes={"cycle =": f'cycle = "{ROOT}/config/cycles/lift.toml"\nlibrary = ["my_components.py"]'}
    ) as server:
        asyncio.run(talk(server))
        server.kill("supervisor", number=15)
        assert server.wait_exit() == 0
        (log,) = server.logs
    assert (values_of_the_last_circuit(log)["leak.q_A"] < 0.0).all()
    assert replay_log(log).ok


def test_a_changed_file_is_another_component(tmp_path: Path) -> None:
    """Two versions of a file in one process, as a replay of an old log has: each its own text, other arrays."""
    old, new = OwnFile("my.py", OWN), OwnFile("my.py", OWN.replace("12.0 *", "6.0 *"))
    circuit = {"components": {"leak": {**GAP, "ports": {"A": "a", "B": "b"}}, **volumes("a", "b")}}
    packed = [pack(read_circuit(circuit, library), library) for library in (library_of([old]), library_of([new]))]
    changed = packed[0].value != packed[1].value
    assert changed.sum() == 1
    assert packed[1].value[changed] == pytest.approx(2 * packed[0].value[changed])
    assert library_of([old]).types["annular_gap"] is library_of([old]).types["annular_gap"]


def volumes(*nodes: str) -> dict[str, Any]:
    return {f"at_{node}": {"type": "volume", "ports": {"P": node}, "volume": "1 l"} for node in nodes}


# --- refusals --------------------------------------------------------------------------------------------------------

HEAD = """from hilserver.components.base import Component, Fluid, Memory, Parameters, State, kernel, sampled

class Mine(Component):
    type_name = "mine"
    hydraulic = ("A", "B")
"""
BODY = """
    def parameters(self, fluid: Fluid) -> Parameters:
        return {"G": 1e-12}

@kernel(Mine)
def mine(p_A, p_B, G):
    q_B = G * (p_A - p_B)
    q_A = -q_B
    return q_A, q_B
"""


def refused(text: str, name: str = "mine.py") -> str:
    with pytest.raises(ConfigurationError) as caught:
        check_kernels(library_of([OwnFile(name, text)]))
    return str(caught.value)


def test_the_body_of_these_tests_is_accepted() -> None:
    check_kernels(library_of([OwnFile("mine.py", HEAD + BODY)]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class X(:\n    pass\n", "mine.py: line 1: invalid syntax."),
        ("\n\nx = 1 / 0\n", "mine.py: line 3: ZeroDivisionError: division by zero"),
        ("import no_such_package\n", "mine.py: line 1: ModuleNotFoundError: No module named 'no_such_package'"),
        ("raise SystemExit(3)\n", "mine.py: line 1: SystemExit: 3"),
        ("x = 1\0\n", "source code string cannot contain null bytes"),
        ("x = 1\n", "mine.py: has no component: a class derived from Component with a type_name"),
        ("from hilserver.components.tank import Tank\n", "has no component"),
        (HEAD, "mine.py: Mine: has no kernel: put @kernel(Mine) above"),
        (HEAD.replace('"mine"', '"orifice"') + BODY, 'type_name "orifice" is taken by a built-in component.'),
        (HEAD + BODY.replace("return q_A, q_B", "return q_A, q_B * 1"), "must return plain names such as q_P, dK"),
        (HEAD + BODY.replace("q_A = -q_B", "if G > 0:\n        return q_B"), "must have exactly one return"),
        (HEAD + BODY.replace("q_A", "q_C"), 'kernel mine: returns q_C, but there is no hydraulic port "C".'),
        (HEAD + BODY.replace("return q_A, q_B", "return q_A, q_A"), "returns a name twice"),
        (HEAD + '    states = (State("x", "m"),)\n' + BODY, 'state "x" has no derivative: return dx from a kernel.'),
        (HEAD + '    outputs = ("signal",)\n' + BODY, 'output "signal" is not written: return u_signal from a kernel.'),
        (HEAD.replace('"B")', '"B", "X")') + BODY, 'port "X" is used by no kernel.'),
        (HEAD + BODY.replace("@kernel", "@sampled"), "this kind of kernel returns next_<memory>"),
        (
            HEAD + BODY.replace("G * (p_A - p_B)", 'float("1") * open(p_A)'),
            "mine.py: Mine: kernel mine can't be compiled: Untyped global name 'open'",
        ),
        (HEAD + BODY.replace("G * (p_A - p_B)", "H * (p_A - p_B)"), "kernel mine can't be compiled: NameError"),
        (
            "import numpy as np\n" + HEAD + BODY.replace("G * (p_A - p_B)", "(G * np.array([p_A - p_B]))[0]"),
            "kernel mine can't be compiled: it creates an array, a list or a string, "
            "but a tick must not allocate memory",
        ),
    ],
)
def test_an_invalid_file_is_refused_with_file_and_line_or_kernel(text: str, said: str) -> None:
    found = refused(text)
    assert said in found
    assert "mine.py" in found
    assert "Traceback" not in found
    assert "\x1b" not in found


def test_name_taken_by_another_file_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r'b.py: Mine: type_name "mine" is taken by a.py'):
        library_of([OwnFile("a.py", HEAD + BODY), OwnFile("b.py", "# another\n" + HEAD + BODY)])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            BODY.replace('"G"', '"H"'),
            "mine.py: kernel mine: G is neither a port, a state or a memory, nor in parameters(). Allowed: H.",
        ),
        (BODY.replace("1e-12", '"much"'), 'kernel mine: G is "much" in parameters(): no number.'),
        (BODY.replace("1e-12", "float('nan')"), "kernel mine: G is nan in parameters(): no number."),
        (BODY.replace("1e-12", "1 / self.missing"), "parameters() of Mine fails here: AttributeError"),
        (
            '    states = (State("x", "m", initial="x_0"),)\n'
            + BODY.replace("return q_A", "dx = 0.0\n    return dx, q_A"),
            "x: x_0 is not a number in parameters().",
        ),
    ],
)
def test_circuit_with_a_component_that_breaks_its_contract_is_refused(body: str, said: str) -> None:
    library = library_of([OwnFile("mine.py", HEAD + body)])
    circuit = {"components": {"mine": {"type": "mine", "ports": {"A": "a", "B": "b"}}, **volumes("a", "b")}}
    with pytest.raises(ConfigurationError) as caught:
        read_circuit(circuit, library, "circuit.toml")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("library", "said"),
    [
        ('["../none.py"]', "none.py: no such file."),
        ('["../rigs"]', "rigs: can't be read"),
        ('"../my_components.py"', "library: "),
        ("[7]", "library[0]: 7 is not a string in quotes."),
    ],
)
def test_rig_names_files_that_are_there(tmp_path: Path, library: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_rig(rig_file(tmp_path, library=library))
    assert said in str(caught.value)


def test_all_files_and_the_settings_are_judged_at_once(tmp_path: Path) -> None:
    file = rig_file(tmp_path, text="x = \n", library='["../my_components.py", "../none.py"]')
    file.write_text("unknown = 1\n" + file.read_text())
    with pytest.raises(ConfigurationError) as caught:
        load_rig(file)
    assert [str(p).split(": ", 1)[1][:18] for p in caught.value.problems] == [
        "no such file.",
        "line 1: invalid sy",
        "unknown: unknown k",
    ]


def test_page_shows_what_is_printed() -> None:
    assert refused(page_file("broken.py"), "broken.py") in PAGE


def test_table_of_an_own_component_is_checked_and_compiled() -> None:
    """A curve, and a memory of several values, come as pairs."""
    text = (
        HEAD.replace("hydraulic", "inputs").replace(
            '"B")', '"B")\n    outputs = ("u",)\n    memories = (Memory("m", 3),)'
        )
        + """
    def parameters(self, fluid: Fluid) -> Parameters:
        return {"table_c": TABLE}

@kernel(Mine)
def mine(u_A, u_B, m, table_c):
    values, first = m
    u_u = interpolate(table_c, u_A) + values[first + 2]
    return u_u
"""
    ).replace(
        "class",
        "from hilserver.components.base import Table\nfrom hilserver.numerics.table import interpolate\nclass",
        1,
    )
    circuit = {"components": {"mine": {"type": "mine", "A": 1, "B": 2, "u": "u"}, **volumes("a")}}
    for table, fits in (("Table((0.0, 1.0), (0.0, 5.0))", True), ("1.0", False)):
        library = library_of([OwnFile("mine.py", text.replace("TABLE", table, 1))])
        check_kernels(library)
        if fits:
            packed = pack(read_circuit(circuit, library), library)
            assert np.isfinite(packed.value[-5:]).all()
        else:
            with pytest.raises(ConfigurationError, match="no Table"):
                read_circuit(circuit, library)


def test_installed_package_that_cant_be_imported_is_named(tmp_path: Path) -> None:
    """In a process of its own, with an entry point on its path, as pip would put it there."""
    (tmp_path / "sick.py").write_text("import no_such_package\n")
    info = tmp_path / "sick-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sick\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[hilserver.components]\nours = sick\n")
    script = "from hilserver.circuit.library import standard_library as s; s()"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    said = "installed components ours (sick): can't be imported: ModuleNotFoundError: No module named 'no_such_package'"
    assert said in done.stderr
