"""The command line without a server: check, simulate, replay, export, bench; and what it says to bad configurations."""

from __future__ import annotations

import copy
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Command
from forged_log import rewritten

from hilserver.cli import no_interrupt_lost
from hilserver.errors import ConfigurationError
from hilserver.rig.build import load_rig
from hilserver.simulation.lockstep import LockstepRun
from hilserver.toml import read_toml

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "config/rigs/demo.toml"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "run.arrow"
    with LockstepRun(load_rig(DEMO), path) as run:
        run.start()
        run.run(400)
    return path


# --- what the commands say --------------------------------------------------------------------------------------------


def test_linear_algebra_has_no_threads_of_its_own() -> None:
    """They would only wait for each other, each at full load: `identify` took twice the processor time."""
    code = """
from hilserver.cli import main
try:
    main()
except SystemExit:
    pass
import os, numpy, scipy.linalg
print(len(os.listdir("/proc/self/task")))
"""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    command = [sys.executable, "-c", code, "--version"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "1"


def test_help_is_quick_and_names_every_command() -> None:
    """Quick: nothing heavy is imported for it."""
    code = (
        "import sys; import hilserver.cli; print(*({'numba', 'pyarrow', 'matplotlib', 'aiomqtt'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""
    script = Path(sys.executable).parent / "hilserver"
    text = subprocess.run([script, "--help"], capture_output=True, text=True, check=True).stdout
    for name in ("run", "simulate", "replay", "check", "switch", "status", "export", "bench", "demo", "send"):
        assert f" {name} " in text


@pytest.mark.parametrize("name", ["simulate", "replay", "check", "export", "bench"])
def test_every_command_has_help(name: str, hilserver: Command) -> None:
    said = hilserver(name, "--help")
    assert said.code == 0
    assert f"hilserver {name}" in said.out
    assert len(said.out.splitlines()) > 8


def test_help_breaks_lines_only_where_the_terminal_ends(hilserver: Command) -> None:
    """Not where the source of the program does."""
    lines = [line.strip() for line in hilserver("demo", "--help").out.splitlines()]
    assert any("are switched live over MQTT" in line for line in lines)


def test_check_shows_the_rig(hilserver: Command) -> None:
    said = hilserver("check", DEMO)
    assert (said.code, said.err) == (0, "")
    for text in (
        "p_A",
        "0 bar … 250 bar",
        "opening_pressure 150 bar",
        "5 bar, 20 l/min; 15 bar, 60 l/min",
        "command: joystick",
        "2 l",
        "main_valve.U",
        "37.18 l/min",
        "critical delay",
        "1 ms (1000 Hz)",
        "no problems.",
    ):
        assert text in said.out, text
    assert "Note:" not in said.out


def test_check_warns_of_a_real_valve_that_is_too_small(hilserver: Command, files: Files) -> None:
    files.set("rig", "valves.main.nominal_flow.flow", "20 l/min")
    rig = files.write()
    said = hilserver("check", rig)
    assert said.code == 0
    note = "Note: valves.main: port to T, the virtual circuit requests 2.01 times the flow"
    assert note in said.out
    assert "no problems" not in said.out
    count = said.out.count("Note: ")
    assert said.out.endswith(f"{rig}: no errors, {count} note{'s' * (count > 1)}.\n")
    said = hilserver("check", rig, "--strict")
    assert said.code == 1
    assert note in said.out
    assert "no problems." not in said.out
    assert said.err == f"{rig}: {said.out.count('Note: ')} notes count as problems (--strict).\n"


def test_check_states_the_volume_of_a_node_whatever_the_air_makes_of_it(hilserver: Command, files: Files) -> None:
    """Without pressure, 1 % of air makes the oil 50 times as soft; the line still has 2 l."""
    files.set("circuit", "fluid", {"air_fraction": 0.01})
    files.set("circuit", "nodes", {"supply": {"pressure": "0 bar"}})
    said = hilserver("check", files.write())
    assert re.search(r"supply\W+hydraulic\W+0 bar\W+2 l\b", said.out)


def test_a_rig_without_notes_passes_a_strict_check(hilserver: Command) -> None:
    assert hilserver("check", DEMO, "--strict").code == 0


def test_check_of_the_actuator_log_rig_needs_no_log(hilserver: Command) -> None:
    said = hilserver("check", ROOT / "config/rigs/actuator_log.toml")
    assert said.code == 0
    assert "no errors, 2 notes." in said.out


def test_simulate_reports_and_writes(hilserver: Command, tmp_path: Path) -> None:
    said = hilserver("simulate", DEMO, "--output", tmp_path, "--strategy", "inverse_static")
    assert (said.code, said.err) == (0, "")
    assert "times more accurate than no compensation" in said.out
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"demo-simulate{end}" for end in ("-circuit.svg", "-segments.png", ".html", ".json", ".md")
    ]


def test_simulate_refuses_an_unknown_strategy(hilserver: Command, tmp_path: Path) -> None:
    said = hilserver("simulate", DEMO, "--output", tmp_path, "--strategy", "invers_static")
    assert said.code == 2
    assert "Did you mean inverse_static?" in said.err


def test_replay_exits_with_0_for_the_same_and_with_1_for_another_result(
    hilserver: Command, log: Path, tmp_path: Path
) -> None:
    said = hilserver("replay", log)
    assert (said.code, said.err) == (0, "")
    assert "404 ticks with 0 switches" in said.out
    assert "identical, bit for bit" in said.out
    column = load_rig(DEMO).layout.column("valve.main.output")

    def tamper(values: Any, row: int) -> None:
        values[column] += 1.0 * (row == 300)

    forged = rewritten(log, tmp_path / "forged.arrow", rows=tamper)
    said = hilserver("replay", forged)
    assert said.code == 1
    assert "valve.main.output" in said.out
    assert "300" in said.out
    said = hilserver("replay", forged, "--json")
    assert said.code == 1
    told = json.loads(said.out)
    assert (told["ok"], told["differences"][0]["column"]) == (False, "valve.main.output")
    assert hilserver("replay", forged, "--from-row", "301", "--report", tmp_path / "pages").code == 0
    assert hilserver("replay", forged, "--report", tmp_path / "pages").code == 1
    page = (tmp_path / "pages/forged-replay.html").read_text()
    assert "replayed with DIFFERENCES" in page
    assert '<td class="text">valve.main.output</td><td>300</td>' in page
    assert hilserver("replay", forged, "--tolerance", "10000").code == 0


def test_replay_of_a_foreign_log(hilserver: Command, tmp_path: Path) -> None:
    record = tmp_path / "record.txt"
    record.write_text("PG_1\tPG_2\n" + "3000\t1500\n" * 50)
    rig = ROOT / "config/rigs/actuator_log.toml"
    said = hilserver("replay", rig, "--file", record, "--output", tmp_path / "out")
    assert (said.code, said.err) == (0, "")
    assert "491 ticks; the rig ended in mode RUNNING" in said.out
    assert sorted(path.suffix for path in (tmp_path / "out").iterdir()) == [".arrow", ".html", ".md", ".png", ".svg"]
    record.write_text("PG_1\tOther\n" + "3000\t1500\n" * 50)
    said = hilserver("replay", rig, "--file", record, "--output", tmp_path / "out")
    assert said.code == 2
    assert "PG_2" in said.err


def test_export(hilserver: Command, log: Path, tmp_path: Path) -> None:
    said = hilserver(
        "export", log, tmp_path / "run.csv", "--columns", "time", "--columns", "channel.*", "--every", "10"
    )
    assert said.code == 0
    assert "41 rows, 7 columns" in said.out
    lines = (tmp_path / "run.csv").read_text().splitlines()
    assert len(lines) == 42
    assert '"channel.p_A"' in lines[0]


def test_bench_as_json(hilserver: Command) -> None:
    said = hilserver("bench", DEMO, "--substeps", "2", "--ticks", "20", "--repeats", "2", "--no-rates", "--json")
    assert said.code == 0
    told = json.loads(said.out)
    assert [result["circuit"] for result in told["results"]] == ["rk4 × 2"] * 4
    assert {"circuit", "bridge", "look-ahead", "publish", "recorder"} <= {part["name"] for part in told["parts"]}
    assert "relief_valve" in {cost["type"] for cost in told["components"]}
    assert [(cost["device"], cost["where"]) for cost in told["drivers"]] == [("rig", "loop")]
    assert told["machine"]["processor"]


@pytest.mark.parametrize("command", ["check", "simulate", "bench", "replay"])
def test_a_missing_file_is_reported(command: str, hilserver: Command, tmp_path: Path) -> None:
    said = hilserver(command, tmp_path / "none.toml")
    assert said.code == 2
    assert "none.toml: no such file" in said.err
    assert "1 problem. Nothing was changed." in said.err


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\xff\xff\xff\xff\x10\x00\x00\x00", bytes(range(256)) * 9])
def test_an_invalid_log_is_reported(content: bytes, hilserver: Command, tmp_path: Path) -> None:
    (tmp_path / "log.arrow").write_bytes(content)
    for arguments in (("replay", tmp_path / "log.arrow"), ("export", tmp_path / "log.arrow", tmp_path / "out.csv")):
        said = hilserver(*arguments)
        assert said.code == 2
        assert "log.arrow" in said.err
        assert "Traceback" not in said.err
    assert not (tmp_path / "out.csv").exists()


def test_ctrl_c_ends_without_a_traceback() -> None:
    script = Path(sys.executable).parent / "hilserver"
    arguments: list[str | Path] = [script, "bench", DEMO, "--ticks", "1000", "--no-rates", "--repeats", "100000"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            while "/x86-64-v" not in Path(f"/proc/{process.pid}/maps").read_text():  # it still imports
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "Traceback" not in out + err


def test_ctrl_c_in_a_callback_from_c_is_not_lost() -> None:
    callback = ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))

    def interrupted() -> None:
        callback()
        time.sleep(10.0)

    with no_interrupt_lost(), pytest.raises(KeyboardInterrupt):
        interrupted()


# --- malformed configurations -----------------------------------------------------------------------------------------


class Files:
    """The demo's files as tables, to be spoiled and written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = {"rig": "rigs/demo", "circuit": "circuits/lift", "cycle": "cycles/lift"}
        self.tables = {key: copy.deepcopy(read_toml(ROOT / f"config/{name}.toml")) for key, name in names.items()}
        rig = self.tables["rig"]
        rig["circuit"], rig["cycle"] = "circuit.toml", "cycle.toml"
        for part in ("machine", "drive"):
            rig["devices"]["rig"][part] = str(ROOT / f"config/circuits/{part}.toml")

    def set(self, file: str, key: str, value: object) -> None:
        """Set a value by its dotted path; the last part may be new."""
        *parents, last = key.split(".")
        table = self.tables[file]
        for parent in parents:
            table = table[parent]
        table[last] = value

    def write(self) -> Path:
        """Write all three; returns the rig file."""
        for name, table in self.tables.items():
            lines = [f"{json.dumps(key)} = {toml(value)}" for key, value in table.items()]
            (self.folder / f"{name}.toml").write_text("\n".join(lines) + "\n")
        return self.folder / "rig.toml"


def toml(value: object) -> str:
    """A value as TOML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, bool | str):
        return json.dumps(value)
    return repr(value)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


QUANTITIES = {
    ("rig", "loop.rate"): "kHz",
    ("rig", "channels.p_S.filter"): "ms",
    ("rig", "valves.main.f45"): "Hz",
    ("rig", "valves.main.slew"): "1/s",
    ("rig", "valves.main.nominal_flow.drop"): "bar",
    ("circuit", "components.pump.max_flow"): "l/min",
    ("circuit", "components.relief.opening_pressure"): "bar",
    ("circuit", "components.main_valve.f45"): "Hz",
    ("circuit", "components.line.volume"): "l",
}
BAD_QUANTITIES: dict[str, Callable[[str], object]] = {
    "wrong unit": lambda unit: "5 kg",
    "no unit": lambda unit: 5.0,
    "NaN": lambda unit: f"nan {unit}",
    "a plain NaN": lambda unit: float("nan"),
    "infinite": lambda unit: f"1e999 {unit}",
    "below its range": lambda unit: f"-3 {unit}",
    "words": lambda unit: f"a lot of {unit}",
    "empty": lambda unit: "",
    "a list": lambda unit: [f"3 {unit}"],
    "a table": lambda unit: {"value": f"3 {unit}"},
    "true": lambda unit: True,
    "text of a megabyte": lambda unit: "9" * 1_000_000 + unit,
}


def malformed() -> Iterator[tuple[str, str, object, str]]:
    """(file, key to set, value, key that must be named)."""
    for (file, key), unit in QUANTITIES.items():
        for bad in BAD_QUANTITIES.values():
            yield file, key, bad(unit), key
    yield from (
        ("rig", "nam", "demo", "nam"),
        ("rig", "name", "no spaces, please", "name"),
        ("rig", "name", 5, "name"),
        ("rig", "loop", 5, "loop"),
        ("rig", "loop.max_missed", -1, "loop.max_missed"),
        ("rig", "loop.max_missed", 2.5, "loop.max_missed"),
        ("rig", "loop.rate", "100 MHz", "loop.rate"),
        ("rig", "loop.priority", 10**30, "loop.priority"),
        ("rig", "channels", {}, "ports.A"),
        ("rig", "channels.p_A.device", "rigg", "channels.p_A.device"),
        ("rig", "channels.p_A.source", "p_AA", "channels.p_A.source"),
        ("rig", "channels.p_A.scale.raw", [1, 1], "channels.p_A"),
        ("rig", "channels.p_A.scale.value", ["0 bar", "3 kg"], "channels.p_A"),
        ("rig", "ports.A", "x", "ports.A"),
        ("rig", "ports.A", "nowhere", "ports.A"),
        ("rig", "inputs.joystick.range", [1, -1], "inputs.joystick"),
        ("rig", "limits.p_A_high.action", "explode", "limits.p_A_high.action"),
        ("rig", "limits.p_A_high.max", "240 mm", "limits.p_A_high.max"),
        ("rig", "devices.rig.driver", "simulatet", "devices.rig.driver"),
        ("rig", "devices.rig.seed", -1, "devices.rig.seed"),
        ("rig", "devices.rig.machine", "no_machine.toml", "no_machine.toml"),
        ("rig", "devices.rig.sensors.p_A.of", "Q", "devices.rig.sensors.p_A.of"),
        ("rig", "valves.main.port", "Z", "valves.main.port"),
        ("rig", "valves.main.polarity", 0, "valves.main.polarity"),
        ("rig", "valves.main.range", [-2, 2], "valves.main"),
        ("rig", "valves.main.bridge.strategy", "best", "valves.main.bridge.strategy"),
        ("rig", "circuit", "no_circuit.toml", "no_circuit.toml"),
        ("rig", "cycle", 7, "cycle"),
        ("circuit", "components", {}, "components"),
        ("circuit", "components", [], "components"),
        ("circuit", "components.pump.type", "pmup", "components.pump.type"),
        ("circuit", "components.pump.ports", {"P": "supply"}, "components.pump.ports.T"),
        ("circuit", "components.pump.colour", "green", "components.pump.colour"),
        ("circuit", "components.relief.override", [["5 bar", "20 l/min"]], "components.relief.override"),
        ("circuit", "components.main_valve.command", "joystik", "joystik"),
        ("circuit", "components.main_valve.command", float("inf"), "components.main_valve.command"),
        ("circuit", "components.line.ports.P", "nowhere", "supply"),
        ("circuit", "solver.integrator", "magic", "solver.integrator"),
        ("circuit", "solver.substeps", 0, "solver.substeps"),
        ("circuit", "nodes.suply", {"pressure": "1 bar"}, "nodes.suply"),
        ("cycle", "inputs.joystick.points", [], "inputs.joystick.points"),
        ("cycle", "inputs.joystick.points", [["1 s", 0], ["0 s", 1]], "inputs.joystick"),
        ("cycle", "inputs.joystick.points", [["0 s", 7.0]], "inputs.joystick.points[0]"),
        ("cycle", "inputs.joystick.shape", "wavy", "inputs.joystick.shape"),
        ("cycle", "inputs", {"wheel": {"points": [["0 s", 0.0]]}}, "inputs.wheel"),
        ("cycle", "repeat", "yes please", "repeat"),
    )


def test_malformed_configurations_are_refused_with_file_and_key(hilserver: Command, tmp_path: Path) -> None:
    cases = list(malformed())
    assert len(cases) > 150
    for number, (file, key, value, named) in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        files = Files(folder)
        files.set(file, key, value)
        said = hilserver("check", files.write())
        about = f"{file}.toml: {key} = {str(value)[:60]}: {said.err[:2000]}"
        assert said.code == 2, about
        assert said.out == "", about
        assert named in said.err, about
        assert str(folder) in said.err, about
        assert said.err.endswith("Nothing was changed.\n"), about
        assert "Traceback" not in said.err, about
        assert len(said.err) < 20_000, about


@pytest.mark.parametrize(
    "content",
    [
        b"\x00\x01\x02\xff\xfe",
        bytes(range(256)) * 100,
        b"name = ",
        b"[a]\n[a]\n",
        b"\xff\xfen\x00a\x00",
        b"x = " + b"[" * 5000 + b"]" * 5000,
        b"n = " + b"9" * 10_000,
        b"",
        b"# nothing\n",
        "näme = 'ä'\n".encode("latin-1"),
    ],
)
@pytest.mark.parametrize("name", ["rig", "circuit", "cycle"])
def test_files_that_are_no_configuration(name: str, content: bytes, hilserver: Command, files: Files) -> None:
    rig = files.write()
    (files.folder / f"{name}.toml").write_bytes(content)
    said = hilserver("check", rig)
    assert (said.code, said.out) == (2, "")
    assert f"{name}.toml" in said.err
    assert said.err.endswith("Nothing was changed.\n")
    assert "Traceback" not in said.err


def test_all_problems_are_reported_not_only_the_first(hilserver: Command, files: Files) -> None:
    files.set("rig", "loop.rate", "1 kg")
    files.set("rig", "inputs.joystick.initial", 7)
    files.set("circuit", "components.pump.max_flow", "5")
    files.set("cycle", "inputs.joystick.shape", "wavy")
    said = hilserver("check", files.write())
    for file, key in (
        ("rig", "loop.rate"),
        ("rig", "inputs.joystick"),
        ("circuit", "components.pump.max_flow"),
        ("cycle", "inputs.joystick.shape"),
    ):
        line = list(files.tables[file]).index(key.partition(".")[0]) + 1
        assert f"{files.folder}/{file}.toml:{line}: {key}: " in said.err
    assert "4 problems. Nothing was changed." in said.err


def test_every_command_refuses_a_bad_rig(hilserver: Command, files: Files) -> None:
    files.set("rig", "loop.rate", "1 kg")
    rig = files.write()
    for command in ("simulate", "bench", "replay"):
        said = hilserver(command, rig)
        assert (said.code, said.out) == (2, "")
        assert re.search(r"rig\.toml:\d+: loop\.rate", said.err)
    assert sorted(path.name for path in files.folder.iterdir()) == ["circuit.toml", "cycle.toml", "rig.toml"]


def test_a_file_of_another_kind_is_called_so(hilserver: Command) -> None:
    config = Path(__file__).parents[2] / "config"
    for command, file, said in (
        ("simulate", "cycles/lift.toml", "is a work cycle, not a rig file"),
        ("run", "circuits/lift.toml", "is a circuit, not a rig file"),
        ("test", "rigs/lift.toml", "is a rig file, not a test sequence"),
    ):
        answer = hilserver(command, config / file)
        assert (answer.code, answer.err.splitlines()[0]) == (2, f"{config / file}: {said}")


def test_check_reports_wrong_values_and_unknown_names_together(tmp_path: Path) -> None:
    """A wrong value does not hide that other keys name channels, ports or signals which don't exist."""
    shutil.copytree(Path(__file__).parents[2] / "config", tmp_path / "config")
    rig, circuit = tmp_path / "config" / "rigs" / "demo.toml", tmp_path / "config" / "circuits" / "lift.toml"
    text = rig.read_text().replace('f90 = "80 Hz"', 'f90 = "80 bar"').replace('B = "p_B"', 'B = "p_Q"')
    rig.write_text(text.replace('p_A_high = { channel = "p_A"', 'p_A_high = { channel = "p_X"'))
    circuit.write_text(
        circuit.read_text().replace('"joystick"', '"joystik"').replace('max_flow = "60 l/min"', 'max_flow = "60 bar"')
    )
    with pytest.raises(ConfigurationError) as error:
        load_rig(rig)
    assert {problem.key for problem in error.value.problems} == {
        "valves.main.f90",
        "ports.B",
        "limits.p_A_high.channel",
        "components.pump.max_flow",
        "components.main_valve.command",
    }
