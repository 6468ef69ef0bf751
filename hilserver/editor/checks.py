"""What `hilserver check` says about a circuit that is being edited, with the part that each problem is about."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from hilserver.circuit.library import Library
from hilserver.circuit.model import Circuit, read_circuit
from hilserver.circuit.pack import pack
from hilserver.editor.document import CircuitDocument
from hilserver.editor.parts import below
from hilserver.errors import ConfigurationError, Problem
from hilserver.toml import parse_with_tolerances

_NODE = re.compile(r'(?:node |signal )?"([^"]+)"')
"""How a message names the node that it is about, where it has no key."""


@dataclass(frozen=True)
class CircuitFinding:
    """A problem; ``part``: the component, ``node``: the node that it is about, "" if it is about neither."""

    text: str
    key: str = ""
    part: str = ""
    node: str = ""


@dataclass(frozen=True)
class CheckedCircuit:
    """The circuit, or why it is none yet."""

    circuit: Circuit | None
    findings: tuple[CircuitFinding, ...] = ()


def check(document: CircuitDocument) -> CheckedCircuit:
    """Read the text as every command reads the file."""
    file = str(document.file)
    if "components" not in document.table and "mechanisms" not in document.table:
        return CheckedCircuit(
            None, (CircuitFinding("The circuit has no component yet: drag one from the palette to the drawing."),)
        )
    try:
        raw = parse_with_tolerances(document.text.encode(), file)
        circuit = _read(raw, document.parts.library, file)
    except ConfigurationError as error:
        return CheckedCircuit(None, tuple(_finding(problem, document) for problem in error.problems))
    return CheckedCircuit(circuit)


def _read(raw: dict[str, object], library: Library, file: str) -> Circuit:
    circuit = read_circuit(raw, library, file)
    pack(circuit, library, file=file)
    return circuit


def _finding(problem: Problem, document: CircuitDocument) -> CircuitFinding:
    if problem.message.startswith('node "'):  # is about the node, not about the port there
        problem = replace(problem, key="")
    other = f"{problem.file}: " if problem.file not in ("", str(document.file)) else ""
    text = f"{other}{problem.key}: {problem.message}" if other else problem.message
    rest = problem.key.removeprefix("components.")
    table = document.table
    parts = below(table, "components")
    part = next((n for n in parts if rest != problem.key and (rest == n or rest.startswith((f"{n}.", f"{n}[")))), "")
    if not part:
        part = next((n for n in parts if f"(In sub-circuit {n} " in problem.message), "")
    name = problem.key.removeprefix("nodes.")
    if not problem.key and (named := _NODE.match(problem.message)):
        name = named[1]
    node = next(
        (n for n in document.parts.nodes(table) if name != problem.key and name in (n, f"{n}.{name[len(n) + 1 :]}")), ""
    )
    key = rest.removeprefix(part).lstrip(".") if part and not other else problem.key
    return CircuitFinding(text, key, part, node)
