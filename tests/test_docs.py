"""The documentation is true: examples are carried out, fragments are validated, no component lacks its page's parts.

Every block of a page says in a comment before it what it is: ``check: rig`` (``circuit``, ``cycle``: a fragment, put
over the demo's file; ``whole circuit``), ``excerpt: FILE`` (stands there so), ``file: FILE`` (is written there for the
examples), ``run: live`` (against one running server; ``refused``: must be; ``python``: a script that talks to it),
``run: offline``, ``run: python``. What a command is shown to print must come in that order; numbers may differ.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import generate
import pytest

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.rig.config import CycleSettings
from hilserver.rig.load import load_rig, read_toml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    "first-run",
    "how-it-works",
    "fidelity",
    "datasheets",
    "mechanics",
    "rig-file",
    "safety",
    "recording",
    "panel",
    "real-time",
    "write-a-component",
    "write-a-driver",
    "calibration",
    "closed-chains",
    "modbus-and-serial",
    "ni",
    "test-sequences",
    "scripts",
    "commissioning",
    "choose-a-strategy",
    "faq",
    "mqtt",
    "identify",
    "service",
]
FILES = [ROOT / "README.md", *(DOCS / f"{page}.md" for page in PAGES)]
BASES = {"rig": "config/rigs/demo.toml", "circuit": "config/circuits/lift.toml", "cycle": "config/cycles/lift.toml"}
LOG = re.compile(r"logs/[\dT-]+_demo\.arrow")
LIBRARY = standard_library()


@dataclass(frozen=True)
class Block:
    """A block of code on a page and the comment before it."""

    page: str
    line: int
    mark: str
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> Iterator[Block]:
    for file in FILES:
        text = file.read_text()
        for found in re.finditer(r"(?:<!-- (.*?) -->\n)?^```(\w+)\n(.*?)^```$", text, re.M | re.S):
            line = text.count("\n", 0, found.start(2)) + 1
            yield Block(file.name, line, found[1] or "", found[2], found[3])


BLOCKS = list(blocks())


def marked(*marks: str) -> list[Block]:
    return [block for block in BLOCKS if block.mark in marks]


def of_kind(kind: str) -> list[Block]:
    return [block for block in BLOCKS if block.mark.startswith(kind)]


def test_every_block_says_what_it_is() -> None:
    runs = {
        "run: demo",
        "run: server",
        "run: live",
        "run: live, refused",
        "run: live python",
        "run: offline",
        "run: python",
    }
    checks = {f"check: {kind}" for kind in (*BASES, "whole circuit")}
    for block in BLOCKS:
        if block.language not in ("sh", "text", "math", "json"):  # messages: test_messages; commands: test_reference
            assert block.mark in runs | checks or block.mark.startswith(("file: ", "excerpt: ")), (
                f"{block}: {block.mark}"
            )


def test_every_page_with_code_takes_part() -> None:
    with_code = {file.stem for file in DOCS.glob("*.md") if re.search(r"^```\w", file.read_text(), re.M)}
    assert with_code == set(PAGES)


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
        file = workplace(tmp_path, "unused").folder / BASES["rig"]
        file.write_text("".join(f"{key} = {inline(value)}\n" for key, value in whole.items()))
        load_rig(file)


@pytest.mark.parametrize("block", of_kind("excerpt: "), ids=str)
def test_excerpt_stands_in_its_file(block: Block) -> None:
    whole = read_toml(ROOT / block.mark.removeprefix("excerpt: "))
    assert over(whole, tomllib.loads(block.text)) == whole


# --- commands --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Workplace:
    """A folder with the example configurations, under a rig name of its own, and the files of the pages."""

    folder: Path
    rig: str

    def start(self, command: str) -> subprocess.Popen[str]:
        bin_folder = Path(sys.executable).parent
        environment = {
            **os.environ,
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "COLUMNS": "250",
            "XDG_RUNTIME_DIR": str(self.folder),
        }
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
            ["/bin/sh", "-c", f"exec {command}"], cwd=self.folder, env=environment, text=True, **both
        )

    def run(self, command: str) -> tuple[int, str]:
        process = self.start(LOG.sub(self.log, command))
        output, _ = process.communicate(timeout=120)
        return process.returncode, output

    def log(self, _: object = None) -> str:
        (log,) = (self.folder / "logs").glob("*.arrow")
        return str(log.relative_to(self.folder))

    def plain(self, text: str) -> str:
        """What is compared: the rig by the name it has on the pages, 0 for every number, one space for many."""
        return " ".join(re.sub(r"\d+([.,]\d+)*", "0", text.replace(self.rig, "demo")).split())

    def compare(self, command: str, shown: str, output: str) -> None:
        """Fails unless all that is shown was printed, in that order."""
        rest = self.plain(output)
        for line in filter(None, map(self.plain, shown.splitlines())):
            assert line in rest, f"{command}: not printed (any more): {line}\n{output}"
            rest = rest.split(line, 1)[1]

    def carry_out(self, block: Block) -> None:
        """Run the commands of a block one after the other."""
        refused = block.mark.endswith("refused")
        for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
            command, _, shown = part.partition("\n")
            code, output = self.run(command)
            assert (code != 0) == refused, f"{block}: {command}: exit code {code}\n{output}"
            self.compare(f"{block}: {command}", shown, output)


def workplace(folder: Path, rig: str) -> Workplace:
    shutil.copytree(ROOT / "config", folder / "config")
    for block in of_kind("file: "):
        file = folder / block.mark.removeprefix("file: ")
        file.parent.mkdir(exist_ok=True)
        file.write_text(block.text)
    demo = folder / BASES["rig"]
    demo.write_text(demo.read_text().replace('name = "demo"', f'name = "{rig}"'))
    return Workplace(folder, rig)


def end(process: subprocess.Popen[str]) -> str:
    """Ctrl-C, as on the pages; returns what was printed last."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=30)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        raise


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workplace, subprocess.Popen[str]]]:
    """``hilserver demo``, which takes its 13 seconds beside the other examples."""
    place = workplace(tmp_path_factory.mktemp("demo"), f"demo-{os.getpid()}-a")
    process = place.start(f"hilserver demo --rig {BASES['rig']}")
    yield place, process
    end(process)


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory, demo: tuple[Workplace, subprocess.Popen[str]]) -> Workplace:
    """A workplace in which one server ran and all live examples were carried out."""
    place = workplace(tmp_path_factory.mktemp("docs"), f"demo-{os.getpid()}-b")
    (block,) = marked("run: server")
    command, _, shown = block.text.removeprefix("$ ").partition("\n")
    server = place.start(command)
    said = ""
    try:
        assert server.stdout is not None
        for line in server.stdout:
            said += line
            if line.startswith("Ctrl-C"):
                break
        place.compare(command, shown, said)
        for live in marked("run: live", "run: live, refused"):
            place.carry_out(live)
        for script in marked("run: live python"):
            (place.folder / "script.py").write_text(script.text)
            code, output = place.run("python script.py")
            assert code == 0, f"{script}:\n{output}"
            assert "is out of range" in output
    finally:
        said = end(server)
    assert server.returncode == 0, said
    return place


def test_live_examples(used: Workplace) -> None:
    """All the live examples of all pages, against one server, whose log the other examples use."""
    assert (used.folder / used.log()).stat().st_size > 0


@pytest.mark.parametrize("block", marked("run: offline"), ids=str)
def test_offline_example(block: Block, used: Workplace) -> None:
    used.carry_out(block)


@pytest.mark.parametrize("block", [b for b in marked("run: python") if "LOG" in LOG.sub("LOG", b.text)], ids=str)
def test_python_example_with_a_log(block: Block, used: Workplace) -> None:
    script = used.folder / "example.py"
    script.write_text(LOG.sub(used.log, block.text))
    code, output = used.run(f"python {script}")
    assert code == 0, output
    assert output.strip()


def test_python_example_of_the_fidelity_page(tmp_path: Path) -> None:
    (example,) = (b for b in marked("run: python") if b.page == "fidelity.md")
    place = workplace(tmp_path, "unused")
    (tmp_path / "example.py").write_text(example.text)
    code, output = place.run("python example.py")
    assert code == 0, output
    assert output.count("Hz:") == 6


def test_demo_says_what_the_page_shows(demo: tuple[Workplace, subprocess.Popen[str]]) -> None:
    place, process = demo
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    for block in marked("run: demo"):
        command, _, shown = block.text.removeprefix("$ ").partition("\n")
        place.compare(command, shown, output)


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
    (example,) = (b for b in marked("run: python") if b.page == "write-a-component.md")
    (tmp_path / "example.py").write_text(
        f"""{example.text}
from pathlib import Path
from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.rig.load import read_toml
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
