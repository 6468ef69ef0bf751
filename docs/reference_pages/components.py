"""The reference pages of the components."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from importlib.resources import files as package_files
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np

from hilserver.circuit.library import RECORDED, Library, Role
from hilserver.components.base import Component
from hilserver.components.describe import connections, first_sentence
from reference_pages.docstrings import docstring, with_sources
from reference_pages.fields import COLUMNS, datasheet_fields
from reference_pages.markdown import cell, fence, table
from reference_pages.places import EXAMPLES, ROOT

TESTS = ("components", "circuit", "mechanics")
"""Folders with tests of components."""


def component_index(library: Library) -> str:
    """All component types with their symbols."""
    rows = [
        (
            f'<span class="symbol small">{symbol(kind)}</span>',
            f"[{title(name)}]({name}.md)",
            f"`{name}`",
            cell(first_sentence(kind).replace("``", "`")),
            cell(drawn_after(kind)),
        )
        for name, kind in library.types.items()
    ]
    intro = (
        "Each page is generated from the class: its equations, its ports, its datasheet values, and the source of "
        "its kernels, which are the equations as computed.\n\n"
        "Symbols follow ISO 1219-1; the last column names the rule and any deviation from it. Where a "
        "datasheet value changes the function, the symbol in a schematic changes with it.\n\n"
        "Pressures are gauge pressures. A flow is positive into a node, a force positive in the direction of "
        "increasing position."
    )
    return "\n\n".join(
        ["# Components", intro, table(("symbol", "component", "`type`", "what it is", "rule of ISO 1219-1"), rows)]
    )


def component_page(name: str, library: Library) -> str:
    """The page of one component type."""
    kind = library.types[name]
    parts = [f"# {title(name)}", f'<div class="symbol">{symbol(kind)}</div>', with_sources(docstring(kind))]
    values = sorted(datasheet_fields(kind), key=lambda row: row[0] == "`description`")  # common to all: last
    parts += ["## Connections", connection_table(kind), "## Datasheet values", table(COLUMNS, values)]
    drawing = f"![Schematic of the example](../../images/components/{name}.svg)"
    parts += ["## Example", "A minimal complete circuit with this component:", drawing, fence("toml", example(name))]
    if kind.states:
        parts += ["## States", states(kind)]
    parts += ["## Logged values", logged(kind, library)]
    parts += ["## Validation", validation(kind)]
    parts += ["## Equations as computed", kernel_text(kind)]
    return "\n\n".join(parts) + "\n"


def title(name: str) -> str:
    """``proportional_valve_4_3`` -> ``Proportional valve 4/3``."""
    return re.sub(r"(\d) (\d)$", r"\1/\2", name.replace("_", " ")).capitalize()


def symbol(kind: type[Component]) -> str:
    """The symbol of a component type: an SVG beside its module."""
    package = kind.__module__.rpartition(".")[0]
    return package_files(package).joinpath("symbols", f"{kind.type_name}.svg").read_text().strip()


def drawn_after(kind: type[Component]) -> str:
    """The rule of the standard that a component's symbol follows, as its file says."""
    said = ElementTree.fromstring(symbol(kind)).findtext("{*}desc") or ""
    return re.sub(r"\b[a-z]+_\w+\b", lambda word: f"`{word[0]}`", said)


def example(name: str) -> str:
    """The example circuit of a component type."""
    return (EXAMPLES / f"{name}.toml").read_text().strip()


def connection_table(kind: type[Component]) -> str:
    """Ports and signals, and how they are written."""
    rows = [(f"`{each.port}`", each.kind, f"`{each.written}`{each.otherwise}") for each in connections(kind)]
    return table(("port", "kind", "connected by"), rows)


def states(kind: type[Component]) -> str:
    """The states of the component."""

    def shown(value: float | str) -> str:
        return f"`{value}`" if isinstance(value, str) else {np.inf: "", -np.inf: ""}.get(value, f"{value:g}")

    rows = [(f"`{s.name}`", s.unit, shown(s.initial), shown(s.lower), shown(s.upper)) for s in kind.states]
    text = "Limits are hard: the engine stops the state there. Names are parameters of the kernel."
    return table(("state", "unit", "initial value", "lower limit", "upper limit"), rows) + "\n\n" + text


def logged(kind: type[Component], library: Library) -> str:
    """The values of the component in telemetry and log."""
    units = {
        Role.FLOW: "m³/s, into the node",
        Role.FORCE: "N, on the node",
        Role.TORQUE: "N·m, on the shaft",
        Role.OBSERVABLE: "SI",
    }
    rows = [(f"`<name>.{s.name}`", s.unit) for s in kind.states]
    for contract in library.contracts_of(kind):
        rows += [(f"`<name>.{term.word}`", units[term.role]) for term in contract.results if term.role in RECORDED]
    nodes = "In addition, for each node: `<node>.p` (Pa, gauge), or `<node>.x` and `<node>.v` (m, m/s)."
    return (table(("value", "unit"), rows) + "\n\n" if rows else "No values of its own. ") + nodes


def kernel_text(kind: type[Component]) -> str:
    """The source of all kernels of a component."""
    sources = [re.sub(r"^@.*\n", "", inspect.getsource(kernel.function)).strip() for kernel in kind.kernels]
    return fence("python", "\n\n".join(sources))


def validation(kind: type[Component]) -> str:
    """The tests that name this component, otherwise those whose circuits contain it; each with its reference."""
    classes = {kind.__name__, *(kernel.function.__name__ for kernel in kind.kernels)}
    by_name = [test.row for test in all_tests() if classes & test.identifiers or kind.type_name in test.texts]
    in_circuits = [test.row for test in all_tests() if any(f'"{kind.type_name}"' in text for text in test.texts)]
    return table(("what is tested", "against", "in"), by_name or in_circuits)


class Tested(NamedTuple):
    """A test: its line of the table, and what occurs in it."""

    row: tuple[str, str, str]
    identifiers: set[str]
    texts: set[str]


@functools.cache
def all_tests() -> list[Tested]:
    """The tests of components and circuits, each with the first paragraph of its docstring."""
    found = []
    for file in sorted(file for folder in TESTS for file in (ROOT / "tests" / folder).glob("test_*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                said = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
                row = (node.name.removeprefix("test_").replace("_", " "), said, f"`{file.name}`")
                found.append(Tested(row, *_words(node)))
    return found


def _words(node: ast.AST) -> tuple[set[str], set[str]]:
    """Identifiers and whole string constants below a node."""
    parts = list(ast.walk(node))
    texts = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    return {part.id for part in parts if isinstance(part, ast.Name)}, texts
