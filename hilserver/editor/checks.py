"""What `hilserver check` says about a circuit that is being edited, with the part that each problem is about."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from hilserver.circuit.library import Library
from hilserver.circuit.model import Circuit, read_circuit
from hilserver.circuit.pack import pack
from hilserver.editor.document import CircuitDocument
from hilserver.editor.parts import below
from hilserver.errors import ConfigurationError, Problem, with_lines
from hilserver.toml import parse_with_tolerances

_NODE = re.compile(r'(?:node |signal )?"([^"]+)"')
"""How a message names the node that it is about, where it has no key."""


MECHANISM = "mechanism "
"""In front of the name of a mechanism, where parts of a circuit are named."""


@dataclass(frozen=True)
class EditorFinding:
    """A problem; ``part``: the component, "mechanism " and its name, or the rig's entry; ``node``: the node.

    ``line``: of the file that is edited, 0 if not known. ``file``: another file in which the problem is, "" if in none.
    """

    text: str
    key: str = ""
    part: str = ""
    node: str = ""
    line: int = 0
    file: str = ""
    is_note: bool = False
    """It is allowed, but probably unintended."""

    @property
    def sentence(self) -> str:
        """The problem with its place."""
        where = ".".join(filter(None, (self.part or self.node, self.key)))
        line = f"line {self.line}" if self.line else ""
        return ": ".join(filter(None, (line, where if not self.file else "", self.text)))


@dataclass(frozen=True)
class CheckedCircuit:
    """The circuit, or why it is none yet."""

    circuit: Circuit | None
    findings: tuple[EditorFinding, ...] = ()


def check(document: CircuitDocument) -> CheckedCircuit:
    """Read the text as every command reads the file."""
    file = str(document.file)
    if "components" not in document.table and "mechanisms" not in document.table:
        return CheckedCircuit(
            None, (EditorFinding("The circuit has no component yet: drag one from the palette to the drawing."),)
        )
    try:
        raw = parse_with_tolerances(document.text.encode(), file)
        circuit = _read(raw, document.parts.library, file)
    except ConfigurationError as error:
        problems = with_lines(error.problems, texts={file: document.text.removeprefix("\ufeff")})
        return CheckedCircuit(None, tuple(_finding(problem, document) for problem in problems))
    return CheckedCircuit(circuit)


def _read(raw: dict[str, object], library: Library, file: str) -> Circuit:
    circuit = read_circuit(raw, library, file)
    pack(circuit, library, file=file)
    return circuit


def _finding(problem: Problem, document: CircuitDocument) -> EditorFinding:
    other = problem.file if problem.file not in ("", str(document.file)) else ""
    if not other and problem.message.startswith('node "'):  # is about the node, not about the port there
        problem = replace(problem, key="")
    text = str(problem) if other else problem.message
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
    inner = problem.key.removeprefix("mechanisms.")
    if not part and inner != problem.key:
        names = (n for n in below(table, "mechanisms") if inner == n or inner.startswith(f"{n}."))
        if name := max(names, key=len, default=""):
            part, key = f"{MECHANISM}{name}", inner.removeprefix(name).lstrip(".")
    return EditorFinding(text, key, part, node, 0 if other else problem.line, other)
