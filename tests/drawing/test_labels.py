"""Names and live values of every ready circuit can be read: in a real browser, none lies on another one or on a symbol.

The texts are the widest ones that the panel writes. Extents are the browser's own (SVG 1.1: `getBBox`, and
`isPointInStroke` for lines), independent of the widths that the layout reckons with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from panel_bench import CHROMIUM, chromium
from playwright.sync_api import Browser, Page

from hilserver.circuit.library import circuit_library, standard_library
from hilserver.drawing.parts import read_parts
from hilserver.drawing.schematic import STYLE, schematic
from hilserver.editor.parts import Parts
from hilserver.editor.picture import part_of, picture_of
from hilserver.editor.sketch import sketch
from hilserver.panel.schematic import live_texts
from hilserver.simulation.circuit_run import read_circuit_file
from hilserver.toml import read_toml
from hilserver.web.display import Units

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="not installed: chromium (make test-programs)"),
]

ROOT = Path(__file__).parents[2]
LIBRARY = standard_library()
CIRCUITS = sorted((*(ROOT / "config/circuits").glob("*.toml"), *(ROOT / "docs/examples").glob("*.toml")))
PANEL_STYLE = "".join((ROOT / "hilserver" / name).read_text() for name in ("web/circuit.css", "panel/panel.css"))
EDITOR_STYLE = "".join((ROOT / "hilserver" / name).read_text() for name in ("web/circuit.css", "editor/editor.css"))
WIDTHS = (1400, 820, 390)
READABLE = 9.0
"""Pixels of the smallest values and names."""

COLLISIONS = """() => {
  const svg = document.querySelector("svg.schematic");
  const toSheet = svg.getScreenCTM().inverse();
  const boxOf = (element) => {  // in units of the drawing
    const matrix = toSheet.multiply(element.getScreenCTM()), box = element.getBBox();
    const corners = [[0, 0], [1, 0], [0, 1], [1, 1]].map(([x, y]) =>
      new DOMPoint(box.x + x * box.width, box.y + y * box.height).matrixTransform(matrix));
    const xs = corners.map((c) => c.x), ys = corners.map((c) => c.y);
    return { left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys) };
  };
  const meet = (a, b, by = 0) =>
    a.left < b.right + by && b.left < a.right + by && a.top < b.bottom + by && b.top < a.bottom + by;
  const isLabel = (text) => text.matches(".name, .value, .signal, .letter, .port");
  const texts = [...svg.querySelectorAll("text")].filter((text) => text.textContent).map((element) => {
    const box = boxOf(element), lead = 0.16 * (box.bottom - box.top); // above capitals and below the base line
    return { element, label: isLabel(element), box: { ...box, top: box.top + lead, bottom: box.bottom - lead } };
  });
  const drawn = "path, rect:not(.hit), circle:not(.reach, .handle:not(.free) *), ellipse";
  const shapes = [...svg.querySelectorAll(drawn)].filter((element) => !element.matches(".wire-hit"))
    .map((element) => ({ element, box: boxOf(element) }));
  const drawnOn = (box, shape) => {
    const matrix = shape.getScreenCTM().inverse().multiply(svg.getScreenCTM());
    const filled = getComputedStyle(shape).fill !== "none" && !shape.closest(".machine, .under");
    for (let x = box.left; x <= box.right; x += 1.5)
      for (let y = box.top; y <= box.bottom; y += 1.5) {
        const point = new DOMPoint(x, y).matrixTransform(matrix);
        if (shape.isPointInStroke(point) || (filled && shape.isPointInFill(point))) return true;
      }
    return false;
  };
  const found = [], view = svg.viewBox.baseVal;
  texts.forEach((one, number) => {
    const { element, box, label } = one, said = `"${element.textContent}"`;
    if (!label) return;
    const right = view.x + view.width, bottom = view.y + view.height;
    if (box.left < view.x || box.top < view.y || box.right > right || box.bottom > bottom)
      found.push(`${said} is outside of the drawing`);
    texts.forEach((other, k) => {
      if (other.label && k <= number) return;
      if (meet(box, other.box)) found.push(`${said} is on "${other.element.textContent}"`);
    });
    const haloed = element.matches(".value, .editor-sheet .signal");
    for (const { element: shape, box: extent } of shapes) {
      if ((haloed && shape.matches(".line, .under *")) || !meet(box, extent, 3)) continue;
      if (drawnOn(box, shape)) found.push(`${said} is on <${shape.outerHTML.slice(1, 90)}`);
    }
  });
  const sizes = [...svg.querySelectorAll(".name, .value, .signal")]
    .map((text) => parseFloat(getComputedStyle(text).fontSize) * svg.getScreenCTM().a);
  const size = sizes.length ? Math.min(...sizes) : Infinity;
  return { found, texts: texts.length, size, page: document.documentElement.scrollWidth };
}"""
FILL = """(texts) => {
  for (const element of document.querySelectorAll("[data-value]"))
    if (element.dataset.value in texts) element.textContent = texts[element.dataset.value];
}"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as browser:
        yield opened(browser)


def opened(browser: Browser) -> Page:
    return browser.new_page()


def source(path: Path) -> dict[str, Any]:
    """The circuit as the panel draws it: its sub-circuits resolved."""
    return dict(read_circuit_file(path, LIBRARY).source)


class Widest(dict[str, float | None]):
    """Values of all channels: none that a machine shows is written wider in this unit."""

    def get(self, channel: str, _: object = None) -> float:
        if channel.endswith(".p"):
            return -999.4e5
        return -999.994 / 60_000 if ".q_" in channel else -999.9994


def shown(page: Page, circuit: dict[str, Any], width: int, units: Units) -> dict[str, Any]:
    """What is wrong with the texts of a circuit on a page of this width, and how large they are."""
    page.set_viewport_size({"width": width, "height": 900})
    card = f'<div class="card"><div class="schematic-view">{schematic(circuit)}</div></div>'
    page.set_content(f"<style>{STYLE}{PANEL_STYLE}</style>{card}")
    page.evaluate(FILL, live_texts(read_parts(circuit), Widest(), units))
    return dict(page.evaluate(COLLISIONS))


@pytest.mark.parametrize("path", CIRCUITS, ids=lambda path: path.stem)
def test_no_text_lies_on_another_one_or_on_a_symbol(page: Page, path: Path) -> None:
    """At 1400, 820 and 390 pixels, in the usual units; and in those that are written widest."""
    circuit = source(path)
    widest = Units({"Pa": "Pa", "m^3/s": "US gal/min"})
    for width, units in (*((width, Units()) for width in WIDTHS), (WIDTHS[0], widest)):
        seen = shown(page, circuit, width, units)
        assert seen["texts"] > 0 or path.stem == "tank", "only a tank has neither name nor value"
        assert seen["found"] == [], f"{path.stem} at {width} px"
        assert seen["size"] >= READABLE, f"{path.stem} at {width} px"
        assert seen["page"] <= width, "the page itself is not to be moved sideways"


def shown_in_editor(page: Page, path: Path, table: dict[str, Any]) -> None:
    """A circuit with the frame of every part as if it were selected, and free ports with some room around them."""
    found = sketch(table, Parts(circuit_library(path), path.parent))
    pictures = [picture_of(found, part, ()) for part in {part_of(item) for item in found.drawing.items}]
    frames = re.findall('<rect class="selected".*?/>', "".join(pictures))
    assert len(frames) == len(found.drawing.items)
    begin, under, rest = picture_of(found, "", ()).partition('<g class="under">')
    assert under
    svg = "".join((begin, under, *frames, rest))
    style = f"{STYLE}{EDITOR_STYLE}.handle.free circle + circle {{ stroke-width: 5px }}"
    page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    page.set_content(f'<style>{style}</style><div class="schematic-view editor-sheet">{svg}</div>')


@pytest.mark.parametrize("path", CIRCUITS, ids=lambda path: path.stem)
def test_no_name_touches_a_symbol_a_free_port_or_a_frame_in_the_editor(page: Page, path: Path) -> None:
    shown_in_editor(page, path, read_toml(path))
    assert page.evaluate(COLLISIONS)["found"] == []


MOVE = """([to, share]) => {
  const name = [...document.querySelectorAll("text.name")].find((text) => text.textContent === "pump");
  const box = document.querySelector(to).getBBox();
  name.setAttribute("x", box.x + box.width / 2);
  name.setAttribute("y", box.y + box.height * share);
}"""
"""Moves the pump's name onto something, to this share of its height."""


def test_names_that_touch_a_frame_or_a_free_port_are_found(page: Page) -> None:
    """The check itself: a name moved onto the edge of a frame, and onto a port that is not connected."""
    path = ROOT / "config/circuits/lift.toml"
    table = dict(read_toml(path))
    table["components"] = {**table["components"], "pump": {**table["components"]["pump"], "ports": {"T": "tank"}}}
    shown_in_editor(page, path, table)
    page.evaluate("""document.querySelector(".handle.free:not(.optional) circle + circle").id = "free" """)
    for to, share, what in (("rect.selected", 0.0, 'class="selected"'), ("#free", 0.5, 'id="free"')):
        page.evaluate(MOVE, [to, share])
        found = [problem for problem in page.evaluate(COLLISIONS)["found"] if problem.startswith('"pump" is on <')]
        assert any(what in problem for problem in found), to


def test_texts_that_lie_on_something_are_found(page: Page) -> None:
    """The check itself: the names of a circuit moved onto one another, onto a symbol and onto a line."""
    circuit = source(ROOT / "config/circuits/lift.toml")
    shown(page, circuit, 1400, Units())
    for to, what in (
        ('[data-part="relief"] .name', '"pump" is on "relief"'),
        ('[data-part="main_valve"] .hit', '"pump" is on <'),
        ('.line[data-line="supply"]', "line hydraulic"),
    ):
        page.evaluate(MOVE, [to, 0.5])
        assert any(what in problem for problem in page.evaluate(COLLISIONS)["found"]), to
