"""The drawing on the page: the schematic with handles at all ports, what is selected, and marks where a problem is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import ceil

from hilserver.components.base import Component
from hilserver.components.describe import in_plain_words, matches
from hilserver.components.synonyms import SYNONYMS
from hilserver.drawing.model import Drawing, Item
from hilserver.drawing.schematic import render
from hilserver.drawing.signal_lines import with_signal_lines
from hilserver.drawing.symbols import Symbol, box, symbol
from hilserver.editor.checks import MECHANISM, EditorFinding
from hilserver.editor.sketch import Sketch

ROOM, STEP = 100.0, 200.0
"""Free room at the right and at the bottom, and steps in which the sheet grows: it does not change at each edit."""
LEAST = (1000.0, 600.0)
_WAYS = re.compile(r"(\d) (\d)$")
"""Of a directional valve: 4/3."""


def picture_of(found: Sketch, selected: str, findings: Sequence[EditorFinding]) -> str:
    """The SVG of a circuit that is being edited; ``selected``: a part or a node."""
    drawing = with_signal_lines(found.drawing)
    _enlarge(drawing)
    begin, *lines, end = render(drawing, found.tanks).split("\n")
    parts = {handle.node: handle.end.component for handle in found.handles if handle.node}
    under = [
        *_hits(drawing),
        '<g class="under">',
        *_selection(drawing, selected),
        "</g>",
    ]  # what is named stays legible
    over = ['<g class="over">', *_handles(found), *_marks(drawing, findings, parts), "</g>"]
    return "\n".join((begin, *under, *lines, *over, end))


def _enlarge(drawing: Drawing) -> None:
    right, bottom = drawing.left + drawing.width, drawing.top + drawing.height
    drawing.width = max(LEAST[0], STEP * ceil((right + ROOM) / STEP)) - drawing.left
    drawing.height = max(LEAST[1], STEP * ceil((bottom + ROOM) / STEP)) - drawing.top


def _hits(drawing: Drawing) -> Iterable[str]:
    """Broad lines that nobody sees, for the mouse."""
    for wire in drawing.wires:
        path = "M" + "L".join(f"{x:g} {y:g}" for x, y in wire.points)
        yield f'<path class="wire-hit" data-node="{escape(wire.node)}" d="{path}"/>'
    for mark in drawing.nodes:
        name = escape(mark.name)
        yield f'<circle class="wire-hit" data-node="{name}" cx="{mark.x:g}" cy="{mark.y - 4:g}" r="8"/>'


def _handles(found: Sketch) -> Iterable[str]:
    for handle in found.handles:
        (x, y), end = handle.at, handle.end
        about = f"{end}: {handle.kind}, {f'at {handle.node}' if handle.node else 'not connected'}"
        kind = "handle" if handle.node else "handle free optional" if handle.is_optional else "handle free"
        yield (
            f'<g class="{kind}" data-component="{escape(end.component)}" data-port="{escape(end.port)}">'
            f"<title>{escape(about)}</title>"
            f'<circle class="reach" cx="{x:g}" cy="{y:g}" r="9"/><circle cx="{x:g}" cy="{y:g}" r="3.5"/></g>'
        )


def part_of(item: Item) -> str:
    """What a click on a symbol selects."""
    return f"{MECHANISM}{item.part.mechanism}" if item.part.mechanism else item.part.name


def _selection(drawing: Drawing, selected: str) -> Iterable[str]:
    for item in drawing.items:
        if part_of(item) == selected:
            size = f'width="{item.symbol.width + 2:g}" height="{item.symbol.height + 2:g}"'  # short of all names
            yield f'<rect class="selected" x="{item.x - 1:g}" y="{item.y - 1:g}" {size} rx="4"/>'
    for wire in drawing.wires:
        if selected == f"node {wire.node}":
            path = "M" + "L".join(f"{x:g} {y:g}" for x, y in wire.points)
            yield f'<path class="selected" d="{path}"/>'


def _marks(drawing: Drawing, findings: Sequence[EditorFinding], at_nodes: Mapping[str, str]) -> Iterable[str]:
    """A mark at each part with a problem, and at one part of each node with one; its title says which."""
    said: dict[str, list[str]] = {}
    for finding in findings:
        part = finding.part or at_nodes.get(finding.node, "")
        said.setdefault(part, []).append(f"{finding.key}: {finding.text}" if finding.key else finding.text)
    for item in drawing.items:
        if texts := said.get(part_of(item)):
            x, y = item.x + item.symbol.width, item.y
            yield (
                f'<g class="problem" data-part="{escape(part_of(item))}"><title>{escape(chr(10).join(texts))}</title>'
                f'<circle cx="{x:g}" cy="{y:g}" r="8"/><text x="{x:g}" y="{y + 4:g}" text-anchor="middle">!</text></g>'
            )


def palette(types: Mapping[str, type[Component]], words: str) -> str:
    """The component types with these words in name, synonyms or description, best first, as buttons to be dragged."""
    wanted = words.split()
    found = [name for name, kind in types.items() if matches(name, kind, wanted)]
    found.sort(key=lambda name: _rank(name, words.casefold().strip()))
    return "\n".join(_offer(name, types[name]) for name in found) or '<p class="none">No matching component.</p>'


def _rank(name: str, words: str) -> int:
    names = [name.replace("_", " ").casefold(), *(other.casefold() for other in SYNONYMS.get(name, ()))]
    if words in names:
        return 0
    return 1 if any(words in other.split() for other in names) else 2 if any(words in other for other in names) else 3


def _offer(name: str, kind: type[Component]) -> str:
    drawn = symbol(name) or box(kind.hydraulic, (*kind.mechanical, *kind.rotational))
    also = ", ".join(SYNONYMS.get(name, ()))
    about = f"{in_plain_words(kind)}{f' Also called: {also}.' if also else ''}"
    scale = min(44.0 / drawn.width, 34.0 / drawn.height, 0.5)
    label = _WAYS.sub(r"\1/\2", name.replace("_", " "))
    return _button(f'data-kind="{escape(name)}"', about, drawn, scale, label)


def offered_files(files: Mapping[str, str], words: str) -> str:
    """The sub-circuits with these words in their name or description, as buttons to be dragged."""
    wanted = words.casefold().split()
    found = [file for file, about in files.items() if all(w in f"subcircuit {file} {about}".casefold() for w in wanted)]
    drawn = box(("P", "T"), ())
    buttons = (
        _button(f'data-kind="subcircuit" data-file="{escape(file)}"', files[file], drawn, 0.5, file) for file in found
    )
    return "".join(('<p class="heading">Sub-circuits</p>', *buttons)) if found else ""


def _button(data: str, about: str, drawn: Symbol, scale: float, label: str) -> str:
    return (
        f'<button type="button" class="palette-item" {data} title="{escape(about)}">'
        f'<svg viewBox="0 0 {drawn.width:g} {drawn.height:g}" fill="none" stroke="currentColor" '
        f'stroke-width="{0.9 / scale:.1f}">{drawn.body}</svg><span>{escape(label)}</span></button>'
    )
