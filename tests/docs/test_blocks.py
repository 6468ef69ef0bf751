"""The documentation is true: every block of code is run (test_*_commands.py) or validated, no page lacks a part.

What a block says of itself, and what a test does instead of some commands, is written in ``pages.py``.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import tomllib
import xml.etree.ElementTree as ElementTree
from importlib.resources import files
from pathlib import Path

import generate
import pytest
from pages import (
    BLOCK,
    BLOCKS,
    DEMO,
    DOCS,
    FILES,
    IN_A_TEST,
    OFFLINE,
    ROOT,
    Block,
    inline,
    marked,
    of_kind,
    over,
    workplace,
)
from reference_pages.components import component_page
from reference_pages.equations import equation

from hilserver.circuit.library import standard_library
from hilserver.circuit.model import read_circuit
from hilserver.circuit.pack import pack
from hilserver.errors import Problem
from hilserver.protocol.parsing import PayloadError, read_command
from hilserver.protocol.published import PUBLISHED, refusal
from hilserver.rig.build import load_rig
from hilserver.rig.cycle import CycleSettings
from hilserver.tolerances import with_tolerances
from hilserver.toml import read_toml

BASES = {"rig": DEMO, "circuit": "config/circuits/lift.toml", "cycle": "config/cycles/lift.toml"}
LIBRARY = standard_library()
NOT_RUN = {
    "dask scheduler": "needs other machines",
    "systemctl start": "needs a machine that systemd has started",
    "systemd-run": "needs a machine that systemd has started",
    "$ hilserver deploy lab.toml hil@rig-pc --extra": "needs another machine",
    "$ hilserver deploy lab.toml hil@rig-pc --runner": "needs another machine",
    "hilserver deploy": "needs another machine",
    "make deb": "takes minutes, and several hundred megabytes",
    "podman build": "needs a container engine",
}
"""All that no test runs: how it begins, and why."""


def test_everything_that_a_test_shortens_is_on_a_page() -> None:
    """A page that was changed would otherwise be carried out in full without anybody noticing."""
    lines = [line for block in BLOCKS for line in re.sub(r"^\$ ", "", block.text, flags=re.M).splitlines()]
    unused = [pattern for pattern, _ in IN_A_TEST if not any(re.search(pattern, line) for line in lines)]
    assert not unused


# --- every block has a mark ------------------------------------------------------------------------------------------


def test_every_block_is_marked() -> None:
    """And there is a test for what it says."""
    runs = {*OFFLINE, *(f"run: {how}" for how in RUN_BY_A_TEST)}
    for block in BLOCKS:
        kind = block.mark.partition(": ")[0]
        known = block.mark in runs if kind == "run" else kind in CHECKED_BY_A_TEST
        assert known or (block.language, block.mark) == ("math", ""), f"{block}: {block.mark or 'no mark'}"


RUN_BY_A_TEST = (
    "make", "demo", "server", "first", "live", "live, refused", "live, any exit code", "live, until Ctrl-C",
    "live python", "python", "dialogue", "root", "broker, as root", "broker, log-in", "broker, commands",
    "broker, panel",
)  # fmt: skip
CHECKED_BY_A_TEST = ("check", "file", "excerpt", "message", "tested", "not run")


def test_all_code_is_in_marked_blocks() -> None:
    """Indented code has neither language nor mark."""
    for file in FILES:
        text = BLOCK.sub("", file.read_text())
        assert "```" not in text, file
        indented = re.findall(r"(?<=\n\n)(?: {4}|\t)\S.*", re.sub(r"^!!!.*\n(?: {4}.*\n)+", "", text, flags=re.M))
        assert indented == [], file


def test_nearly_all_blocks_are_run() -> None:
    """And each says why."""
    found = {block.text: block.mark.removeprefix("not run: ") for block in of_kind("not run")}
    assert len(found) == len(NOT_RUN)
    for begin, reason in NOT_RUN.items():
        assert [why for text, why in found.items() if text.startswith(begin)] == [reason]


@pytest.mark.parametrize("block", of_kind("tested: "), ids=str)
def test_the_named_test_uses_the_block(block: Block) -> None:
    file, _, name = block.mark.removeprefix("tested: ").partition("::")
    functions = {
        node.name: node for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)
    }
    assert f'only("{block.mark}")' in ast.unparse(functions[name]).replace("'", '"')


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "math"], ids=str)
def test_equation_can_be_drawn(block: Block) -> None:
    assert "<path d=" in equation(block.text)


# --- fragments of configuration --------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", of_kind("check: "), ids=str)
def test_fragment_is_valid(block: Block, tmp_path: Path) -> None:
    kind = block.mark.removeprefix("check: ")
    problems = list[Problem]()
    part = with_tolerances(tomllib.loads(block.text), str(block), problems)
    assert problems == []
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
def test_excerpt_is_in_its_file(block: Block) -> None:
    whole = read_toml(ROOT / block.mark.removeprefix("excerpt: "))
    assert over(whole, tomllib.loads(block.text)) == whole


@pytest.mark.parametrize("block", marked("run: make"), ids=str)
def test_targets_of_make_run_the_tested_commands(block: Block, tmp_path: Path) -> None:
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
        assert f".venv/bin/{carried_out[command[1]]}" in done.stdout


# --- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", of_kind("message: "), ids=str)
def test_message_is_right_and_complete(block: Block) -> None:
    model = PUBLISHED[block.mark.removeprefix("message: ")]
    assert set(json.loads(block.text)) == set(model.model_fields)
    model.model_validate_json(block.text)


def test_every_message_is_shown() -> None:
    assert {block.mark.removeprefix("message: ") for block in of_kind("message: ")} == set(PUBLISHED)


def test_refusal_on_the_page_is_the_actual_one() -> None:
    with pytest.raises(PayloadError) as refused:
        read_command("jog", b'{"id": "8", "valve": "main", "command": 1.5}')
    answer = refusal("jog", refused.value.id, refused.value.problems, 1795170000.25)
    assert json.loads(answer.payload()) in [json.loads(block.text) for block in marked("message: answer")]


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
    page = generate.on_page_markdown(component_page(kind, LIBRARY))
    component = LIBRARY.types[kind]
    for name in (*component.hydraulic, *component.mechanical, *component.inputs, *component.outputs):
        assert f"| `{name}` |" in page
    for name in (*component.model_fields, *(state.name for state in component.states)):
        assert f"| `{name}` |" in page
    assert 'class="equation"' in page
    assert "```math" not in page
    assert "def " in page


def test_every_symbol_and_example_belongs_to_a_component() -> None:
    kinds = set(LIBRARY.types)
    assert {path.stem for path in (DOCS / "examples").glob("*.toml")} <= kinds
    assert {Path(str(path)).stem for path in (ROOT / "hilserver/components/symbols").iterdir()} <= kinds
