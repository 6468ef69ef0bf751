"""The documentation is true: every block of code is carried out or validated, no component lacks its page's parts.

What a block says of itself, and what a test does instead of some commands, is written in ``pages.py``.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shutil
import ssl
import subprocess
import time
import tomllib
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any

import generate
import mosquitto_lab
import probe
import pytest
from pages import (
    ANSWER,
    BLOCK,
    BLOCKS,
    DEMO,
    DOCS,
    FILES,
    ROOT,
    Block,
    Workplace,
    end,
    marked,
    of_kind,
    only,
    said_until,
    workplace,
)
from probe import ProbeDevice

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.protocol.commands import COMMANDS
from hilserver.protocol.parsing import Refused, read_command
from hilserver.protocol.published import PUBLISHED, refusal
from hilserver.rig.build import load_rig
from hilserver.rig.cycle import CycleSettings
from hilserver.service.broker import _free_port
from hilserver.toml import read_toml

BASES = {"rig": DEMO, "circuit": "config/circuits/lift.toml", "cycle": "config/cycles/lift.toml"}
LIBRARY = standard_library()
OFFLINE = ("run: offline", "run: offline, refused", "run: offline, any exit code")
NOT_RUN = {
    "systemctl start": "needs a machine that systemd has started",
    "systemd-run": "needs a machine that systemd has started",
}
"""All that no test runs: how it begins, and why."""


# --- every block has a mark ------------------------------------------------------------------------------------------


def test_every_block_says_what_it_is() -> None:
    """And there is a test for what it says."""
    runs = {*OFFLINE, *(f"run: {how}" for how in RUN_BY_A_TEST)}
    for block in BLOCKS:
        kind = block.mark.partition(": ")[0]
        known = block.mark in runs if kind == "run" else kind in CHECKED_BY_A_TEST
        assert known or (block.language, block.mark) == ("math", ""), f"{block}: {block.mark or 'no mark'}"


RUN_BY_A_TEST = (
    "make", "demo", "server", "first", "live", "live, refused", "live, until Ctrl-C", "live python", "python",
    "dialogue", "root", "broker, as root", "broker, log-in", "broker, commands", "broker, panel",
)  # fmt: skip
CHECKED_BY_A_TEST = ("check", "file", "excerpt", "message", "tested", "not run")


def test_no_code_hides_outside_of_a_block() -> None:
    """Indented code has neither language nor mark."""
    for file in FILES:
        text = BLOCK.sub("", file.read_text())
        assert "```" not in text, file
        indented = re.findall(r"(?<=\n\n)(?: {4}|\t)\S.*", re.sub(r"^!!!.*\n(?: {4}.*\n)+", "", text, flags=re.M))
        assert indented == [], file


def test_hardly_anything_is_not_run() -> None:
    """And each says why."""
    found = {block.text: block.mark.removeprefix("not run: ") for block in of_kind("not run")}
    assert len(found) == len(NOT_RUN)
    for begin, reason in NOT_RUN.items():
        assert [why for text, why in found.items() if text.startswith(begin)] == [reason]


@pytest.mark.parametrize("block", of_kind("tested: "), ids=str)
def test_another_test_takes_it_from_the_page(block: Block) -> None:
    file, _, name = block.mark.removeprefix("tested: ").partition("::")
    functions = {
        node.name: node for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)
    }
    assert f'only("{block.mark}")' in ast.unparse(functions[name]).replace("'", '"')


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "math"], ids=str)
def test_equation_can_be_drawn(block: Block) -> None:
    assert "<path d=" in generate.equation(block.text)


# --- fragments of configuration --------------------------------------------------------------------------------------


def over(base: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the values of ``part`` in it; a fixed channel, and a scale, replace another as a whole."""
    merged = dict(base)
    for key, value in part.items():
        both_tables = isinstance(value, Mapping) and isinstance(base.get(key), Mapping)
        merged[key] = over(base[key], value) if both_tables and "value" not in value and key != "scale" else value
    return merged


def inline(value: object) -> str:
    """A value in TOML, tables as inline tables; texts and numbers are written as in JSON."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {inline(part)}" for key, part in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    return json.dumps(value)


@pytest.mark.parametrize("block", of_kind("check: "), ids=str)
def test_fragment_is_valid(block: Block, tmp_path: Path) -> None:
    kind = block.mark.removeprefix("check: ")
    part = tomllib.loads(block.text)
    if kind == "whole circuit":
        pack(read_circuit(part, LIBRARY), LIBRARY)
        return
    whole = over(read_toml(ROOT / BASES[kind]), part)
    if kind == "cycle":
        CycleSettings.model_validate(whole)
    elif kind == "circuit":
        rig = load_rig(ROOT / BASES["rig"])
        rig.pack(rig.read_circuit(whole))
    else:
        file = workplace(tmp_path, "unused").folder / DEMO
        file.write_text("".join(f"{key} = {inline(value)}\n" for key, value in whole.items()))
        load_rig(file)


@pytest.mark.parametrize("block", of_kind("excerpt: "), ids=str)
def test_excerpt_stands_in_its_file(block: Block) -> None:
    whole = read_toml(ROOT / block.mark.removeprefix("excerpt: "))
    assert over(whole, tomllib.loads(block.text)) == whole


# --- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", of_kind("message: "), ids=str)
def test_message_is_right_and_complete(block: Block) -> None:
    model = PUBLISHED[block.mark.removeprefix("message: ")]
    assert set(json.loads(block.text)) == set(model.model_fields)
    model.model_validate_json(block.text)


def test_every_message_is_shown() -> None:
    assert {block.mark.removeprefix("message: ") for block in of_kind("message: ")} == set(PUBLISHED)


def test_refusal_of_the_page_is_what_comes() -> None:
    with pytest.raises(Refused) as refused:
        read_command("jog", b'{"id": "8", "valve": "main", "command": 1.5}')
    answer = refusal("jog", refused.value.id, refused.value.problems, 1795170000.25)
    assert json.loads(answer.payload()) in [json.loads(block.text) for block in marked("message: answer")]


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Workplace, subprocess.Popen[str]]]]:
    """The demo by itself, and with its panel to go on; they take their 13 seconds beside the other examples."""
    running = {}
    for name, command in (("demo", "hilserver demo --no-panel"), ("panel", "hilserver demo --stay")):
        place = workplace(tmp_path_factory.mktemp(name), name)
        running[name] = place, place.start(place.in_a_test(command))
    yield running
    for _, process in running.values():
        end(process)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, demos: object) -> Workplace:
    """A workplace in which one server ran and all live examples were carried out."""
    place = workplace(tmp_path_factory.mktemp("docs"), "docs")
    place.carry_out(only("run: first"))
    ((command, shown),) = only("run: server").commands
    server = place.start(command)
    try:
        place.compare(command, shown, said_until(server, "Ctrl-C"))
        for block in BLOCKS:
            if block.mark in ("run: live", "run: live, refused"):
                place.carry_out(block)
        for block in marked("run: live, until Ctrl-C"):
            assert f"<title>{place.rigs['demo']} · hilserver" in page_of(place, block.text)
        for block in marked("run: live python"):
            (place.folder / "script.py").write_text(block.text)
            code, output = place.run("python script.py")
            assert code == 0, f"{block}:\n{output}"
            assert "is out of range" in output
    finally:
        said = end(server)
    assert server.returncode == 0, said
    return place


def page_of(place: Workplace, command: str, context: ssl.SSLContext | None = None) -> str:
    """Start a panel on a free port of this machine, read the page that it serves, and end it."""
    command = re.sub(r"--host \S+|--port \S+", "", command).strip() + f" --port {_free_port()}"
    panel = place.start(place.in_a_test(command))
    try:
        address = re.search(r"https?://\S+", said_until(panel, "Ctrl-C ends it"))
        assert address is not None
        url = address[0].replace("127.0.0.1", "localhost")
        deadline = time.monotonic() + 30.0
        while True:
            try:
                with urllib.request.urlopen(url, context=context) as answer:
                    return str(answer.read().decode())
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.2)
    finally:
        end(panel)


def test_live_examples(served: Workplace) -> None:
    """All the live examples of all pages, against one server, whose log the other examples use."""
    assert (served.folder / served.log("demo")).stat().st_size > 0


def test_demo_says_what_the_pages_show(demos: dict[str, tuple[Workplace, subprocess.Popen[str]]]) -> None:
    place, process = demos["demo"]
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    for block in marked("run: demo"):
        ((command, shown),) = block.commands
        without_panel = "\n".join(line for line in shown.splitlines() if "http" not in line)
        place.compare(command, without_panel, output)


def test_demo_with_its_panel_goes_on(demos: dict[str, tuple[Workplace, subprocess.Popen[str]]]) -> None:
    _, process = demos["panel"]
    said = said_until(process, "It goes on")
    said += end(process)
    assert process.returncode == 0, said
    assert re.search(r"Panel in the browser: http://127.0.0.1:\d+\n", said)
    assert re.search(r"^\d.* ticks recorded, ", said, re.M)


@pytest.fixture(scope="module")
def offline(served: Workplace) -> Iterator[dict[Block, Future[None]]]:
    """The offline examples of all pages, some pages at a time; those that drive the rig one after the other."""
    groups: dict[str, list[Block]] = {}
    moving = {block.page for block in marked(*OFFLINE) if "--drive" in block.text}
    for block in sorted(marked(*OFFLINE), key=lambda block: (block.page != "docs/fidelity.md", block.page, block.line)):
        groups.setdefault("moving" if block.page in moving else block.page, []).append(block)
    done: dict[Block, Future[None]] = {block: Future() for group in groups.values() for block in group}

    def carry_out(group: list[Block]) -> None:
        for block in group:
            try:
                served.carry_out(block)
            except BaseException as error:
                done[block].set_exception(error)
            else:
                done[block].set_result(None)

    with ThreadPoolExecutor(3) as pool:
        for group in sorted(groups.values(), key=len, reverse=True):
            pool.submit(carry_out, group)
        yield done


@pytest.mark.parametrize("block", marked(*OFFLINE), ids=str)
def test_offline_example(block: Block, offline: dict[Block, Future[None]]) -> None:
    offline[block].result()


@pytest.mark.parametrize("block", [b for b in marked("run: python") if "logs/" in b.text], ids=str)
def test_python_example_with_a_log(block: Block, served: Workplace) -> None:
    (served.folder / "example.py").write_text(served.in_a_test(block.text))
    code, output = served.run("python example.py")
    assert code == 0, output
    assert output.strip()


@pytest.mark.parametrize(
    ("page", "said"),
    [("fidelity.md", r"(Hz:.*){6}"), ("closed-chains.md", r"1 degrees of freedom|2 degrees of freedom")],
)
def test_python_example(page: str, said: str, tmp_path: Path) -> None:
    place = workplace(tmp_path, "python")
    (tmp_path / "example.py").write_text(only("run: python", page).text)
    code, output = place.run("python example.py")
    assert code == 0, output
    assert re.search(said, output, re.S)


@pytest.mark.parametrize("block", marked("run: make"), ids=str)
def test_make_does_what_other_tests_run(block: Block, tmp_path: Path) -> None:
    """Where the environment is there, what make would do is what is run above, and to run the tests."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/.stamp").touch()
    carried_out = {"demo": "hilserver demo", "panel": "hilserver demo --stay", "test": "python -m pytest"}
    ours = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    for line in block.text.splitlines():
        command = line.partition("#")[0].split()
        done = subprocess.run(
            [*command, "--dry-run"], cwd=tmp_path, env=ours, capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[-1].rstrip() == f".venv/bin/{carried_out[command[1]]}"


@pytest.mark.parametrize("block", marked("run: dialogue"), ids=str)
def test_dialogue(block: Block, tmp_path: Path) -> None:
    """With a device that measures what is typed: 40 mV per bar, and 30 mV where nothing is applied."""
    place = workplace(tmp_path, "typed")
    place.environment["PYTHONPATH"] = os.pathsep.join(
        [*map(str, probe.install(tmp_path / "installed")), os.environ.get("PYTHONPATH", "")]
    )
    device = ProbeDevice(tmp_path / "tester")
    device.measure(b=0.03)
    settings = over(read_toml(tmp_path / DEMO), {
        "calibration": "lab-calibration.toml",
        "devices": {"tester": {"driver": "fast_probe", "file": str(device.path)}},
        "channels": {"p_S": {"device": "tester", "source": "b"}},
    })  # fmt: skip
    text = "".join(f"{key} = {inline(value)}\n" for key, value in settings.items())
    (tmp_path / "config/rigs/lab.toml").write_text(text)
    ((command, shown),) = block.commands
    process = place.start(command)
    assert process.stdin is not None
    assert process.stdout is not None
    said = ""
    for question, typed in ANSWER.findall(shown):
        while question not in said.rpartition("\n")[2]:
            said += process.stdout.read(1) or pytest.fail(said)
        if typed[:1].isdigit():
            device.measure(b=0.03 + 0.04 * float(typed))
        said += "\n"
        process.stdin.write(f"{typed}\n")
        process.stdin.flush()
    said += process.communicate(timeout=60)[0]
    assert process.returncode == 0, said
    place.compare(command, shown, said)


# --- a machine of root's, a broker in the network --------------------------------------------------------------------


@pytest.mark.skipif(
    shutil.which("systemctl") is None, reason="systemctl is not installed (Debian: apt install systemd)"
)
def test_commands_of_root(tmp_path: Path) -> None:
    """In a folder that stands for the machine."""
    place = workplace(tmp_path, "root")
    for folder in ("etc/hilserver", "usr/bin"):
        (tmp_path / "machine" / folder).mkdir(parents=True)
    for block in marked("run: root"):
        as_root = [line for line in block.text.splitlines() if os.geteuid() == 0 or not line.startswith("systemd-")]
        code, output = place.run("\n".join(as_root) + "\n")
        assert code == 0, f"{block}:\n{output}"
    etc = tmp_path / "machine/etc"
    assert "CPUAffinity" in (etc / "systemd/system/hilserver.service.d/cpu-affinity.conf").read_text()
    wanted = {path.name for path in (etc / "systemd/system/multi-user.target.wants").iterdir()}
    assert wanted == {"hilserver.service", "hilserver@rig1.service", "hilserver@rig2.service"}


@mosquitto_lab.NEEDS_MOSQUITTO
def test_broker_in_the_network(tmp_path: Path) -> None:
    """What the page says of it from the certificates on: the broker, a server that logs in, its users, the panel."""
    place = workplace(tmp_path, "net")
    rig, machine = place.rigs["lab"], tmp_path / "machine"
    for folder in ("etc/mosquitto/conf.d", "etc/hilserver/credentials", "root", "usr/share/hilserver"):
        (machine / folder).mkdir(parents=True)
    shutil.copytree(ROOT / "systemd/mosquitto", machine / "usr/share/hilserver/mosquitto")
    code, output = place.run(only("run: broker, as root").text)
    assert code == 0, output

    encrypted, plain = _free_port(), _free_port()
    here = (
        (" 8883", f" {encrypted} 127.0.0.1"),
        (" 1883 ", f" {plain} "),
        ("/etc/", f"{machine}/etc/"),
        ("/lab/", f"/{rig}/"),
    )
    for file in (machine / "etc/mosquitto/conf.d/hilserver.conf", machine / "etc/mosquitto/hilserver/acl"):
        text = file.read_text()
        for there, replacement in here:
            text = text.replace(there, replacement)
        file.write_text(text + ("user root\n" if file.suffix == ".conf" and os.geteuid() == 0 else ""))
    broker = place.start(f"mosquitto -c {machine}/etc/mosquitto/conf.d/hilserver.conf")
    try:
        said_until(broker, "running")
        with server_that_logs_in(place, encrypted, machine):
            users_log_in(place, encrypted, machine)
            commands_are_carried_out(place)
            panel_is_served(place, machine)
    finally:
        end(broker)


@contextlib.contextmanager
def server_that_logs_in(place: Workplace, port: int, machine: Path) -> Iterator[None]:
    """The server with the page's log-in, at this port."""
    fragment = next(block for block in marked("check: rig") if "hilserver-lab" in block.text)
    password = machine / "etc/hilserver/credentials/mqtt-lab"
    password.write_text("secret\n")
    password.chmod(0o600)
    settings = over(read_toml(place.folder / DEMO), tomllib.loads(fragment.text.replace("/etc/", f"{machine}/etc/")))
    settings = over(settings, {"name": place.rigs["lab"], "mqtt": {"host": "localhost", "port": port}})
    file = place.folder / "config/rigs/lab.toml"
    file.write_text("".join(f"{key} = {inline(value)}\n" for key, value in settings.items()))
    server = place.start("hilserver run config/rigs/lab.toml")
    try:
        assert f"MQTT: localhost:{port}" in said_until(server, "Ctrl-C")
        yield
    finally:
        said = end(server)
    assert server.returncode == 0, said


def users_log_in(place: Workplace, port: int, machine: Path) -> None:
    """anna's log-in file, and the status by it."""
    script = only("run: broker, log-in").text.replace("lab-pc", "localhost").replace("8883", str(port))
    code, output = place.run(script.replace("/etc/", f"{machine}/etc/"), typed="secret\n")
    assert code == 0, output
    assert f"{place.rigs['lab']}  SAFE" in output
    for program in ("mosquitto_pub", "mosquitto_sub"):
        options = f"-h localhost\n-p {port}\n-u anna\n-P secret\n--cafile {machine}/etc/hilserver/ca.crt\n"
        (place.folder / ".config" / program).write_text(options)


def commands_are_carried_out(place: Workplace) -> None:
    """Every command there is, one after the other: the server carries each out and says so."""
    lines = only("run: broker, commands").text.splitlines()
    hears = f"stdbuf -oL mosquitto_sub -t hil/{place.rigs['lab']}/answer -C {len(lines)} -W 60 -d"
    carried_out = set()
    with place.start(hears) as listening:  # ends by itself: a signal while it does can hang mosquitto_sub
        said_until(listening, "SUBACK")
        for line in lines:
            code, output = place.run(line)
            assert code == 0, output
            answer = json.loads(said_until(listening, "{").splitlines()[-1])
            assert answer["ok"], f"{line}: {answer['problems']}"
            carried_out.add(answer["command"])
    assert carried_out == set(COMMANDS)


def panel_is_served(place: Workplace, machine: Path) -> None:
    """Over TLS, with the log-in page."""
    certificates = machine / "root/lab-certificates"
    for kind in ("crt", "key"):
        shutil.copy(certificates / f"broker.{kind}", place.folder / f"panel.{kind}")
    context = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
    served = page_of(place, only("run: broker, panel").text, context)
    assert f"<title>{place.rigs['lab']} · hilserver" in served


def test_component_of_the_page_works(tmp_path: Path) -> None:
    """Installed as pip would do it: the module and its entry points on the path."""
    place = workplace(tmp_path, "unused")
    project = read_toml(tmp_path / "pyproject.toml")["project"]
    info = tmp_path / "my_components-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    ((group, entries),) = project["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {module}" for name, module in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    (tmp_path / "example.py").write_text(
        f"""{only("run: python", "write-a-component").text}
from pathlib import Path
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.toml import read_toml
library = standard_library()
packed = pack(read_circuit(read_toml(Path("circuits/gap.toml")), library), library)
print([name for name in packed.recorded if name.startswith("leak.")])
"""
    )
    code, output = place.run("python example.py")
    assert (code, output.strip()) == (0, "['leak.q_A', 'leak.q_B']"), output


# --- components: symbol, example, page -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LIBRARY.types)
def test_component_has_a_symbol_with_all_its_ports(kind: str) -> None:
    component = LIBRARY.types[kind]
    file = files(component.__module__.rpartition(".")[0]) / "symbols" / f"{kind}.svg"
    assert file.is_file(), f"{kind} has no symbol: draw {file}"
    symbol = ElementTree.fromstring(file.read_text())
    ports = {element.get("data-port"): element for element in symbol.iter() if element.get("data-port")}
    assert set(ports) == {
        *component.hydraulic,
        *component.mechanical,
        *component.rotational,
        *component.inputs,
        *component.outputs,
    }
    _, _, width, height = map(float, str(symbol.get("viewBox")).split())
    places = [(float(str(port.get("cx"))), float(str(port.get("cy")))) for port in ports.values()]
    assert len(set(places)) == len(places)
    for x, y in places:
        assert x % 10 == 0 == y % 10, f"{kind}: ports lie on a grid of 10"
        assert 0 <= x <= width
        assert 0 <= y <= height


@pytest.mark.parametrize("kind", LIBRARY.types)
def test_component_has_an_example_that_packs(kind: str) -> None:
    file = DOCS / "examples" / f"{kind}.toml"
    assert file.is_file(), f"{kind} has no example circuit: write {file}"
    circuit = read_circuit(read_toml(file), LIBRARY, str(file))
    pack(circuit, LIBRARY, file=str(file))
    assert kind in {placed.component.type_name for placed in circuit.placed}


@pytest.mark.parametrize("kind", LIBRARY.types)
def test_component_page_names_every_port_value_and_state(kind: str) -> None:
    """And its equations can be drawn."""
    page = generate.on_page_markdown(generate.component_page(kind, LIBRARY))
    component = LIBRARY.types[kind]
    for name in (*component.hydraulic, *component.mechanical, *component.inputs, *component.outputs):
        assert f"| `{name}` |" in page
    for name in (*component.model_fields, *(state.name for state in component.states)):
        assert f"| `{name}` |" in page
    assert 'class="equation"' in page
    assert "```math" not in page
    assert "def " in page


def test_no_symbol_and_no_example_is_left_over() -> None:
    kinds = set(LIBRARY.types)
    assert {path.stem for path in (DOCS / "examples").glob("*.toml")} <= kinds
    assert {Path(str(path)).stem for path in (ROOT / "hilserver/components/symbols").iterdir()} <= kinds
