"""Everything can be read, on light and on dark: contrasts of WCAG 2.2, level AA (4.5 for text, 3 for curves)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hilserver.drawing.schematic import STYLE
from hilserver.panel.plots import COLOURS as OF_PANEL
from hilserver.viewer.overlay import COLOURS as OF_VIEWER

ROOT = Path(__file__).parents[2] / "hilserver"
PAGE = (ROOT / "web/page.css").read_text()
PANEL = "".join((ROOT / name).read_text() for name in ("web/circuit.css", "panel/panel.css"))
PLOT = (ROOT / "viewer/time_plot.js").read_text()
TEXT, GRAPHICS = 4.5, 3.0
Rgb = tuple[float, float, float]


def rgb(colour: str) -> Rgb:
    digits = colour.removeprefix("#")
    digits = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
    red, green, blue = (int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4))
    return red, green, blue


def luminance(colour: Rgb) -> float:
    """Relative luminance, WCAG 2.2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Rgb, other: Rgb) -> float:
    """Contrast ratio, WCAG 2.2: 21 for black on white."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def inverted(colour: Rgb) -> Rgb:
    """invert(1) hue-rotate(180deg), as in Filter Effects Module Level 1: what dark pages do to a chart."""
    red, green, blue = (1.0 - c for c in colour)
    rows = ((-0.574, 1.430, 0.144), (0.426, 0.430, 0.144), (0.426, 1.430, -0.856))
    red, green, blue = (min(max(a * red + b * green + c * blue, 0.0), 1.0) for a, b, c in rows)
    return red, green, blue


def variables(selector: str) -> dict[str, str]:
    block = re.search(rf"^{re.escape(selector)} \{{ (--ink.*?) \}}$", PAGE, re.M)
    assert block is not None, selector
    return dict(re.findall(r"--(\w+): (#\w+)", block[1]))


LIGHT, DARK = variables(":root"), variables("body.body--dark")


def test_the_formula_is_that_of_the_standard() -> None:
    assert contrast(rgb("#000"), rgb("#fff")) == pytest.approx(21.0)
    assert contrast(rgb("#767676"), rgb("#fff")) == pytest.approx(4.54, abs=0.01), "known as the lightest AA grey"


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_words_can_be_read(colours: dict[str, str]) -> None:
    assert LIGHT.keys() == DARK.keys()
    for text in ("ink", "soft", "accent", "bad"):
        for ground in ("paper", "ground"):
            assert contrast(rgb(colours[text]), rgb(colours[ground])) >= TEXT, (text, ground)
    assert contrast(rgb(colours["ink"]), rgb(colours["changed"])) >= TEXT
    assert contrast(rgb(colours["ink"]), rgb(colours["edge"])) >= TEXT


def test_words_on_a_colour_of_their_own_can_be_read() -> None:
    """Notes, modes, kinds of events: the same on light and dark pages."""
    pairs = re.findall(r"\{ background: (#\w+); color: (#\w+);? \}", PAGE + PANEL)
    pairs += [(ground, "#fff") for ground in re.findall(r"\.mode(?:\.\w+)* \{ background: (#\w+)", PANEL)]
    pairs += [(ground, "#fff") for ground in re.findall(r"\.mode \{.*background: (#\w+)", PANEL)]
    assert len(pairs) >= 10
    for ground, text in pairs:
        assert contrast(rgb(ground), rgb(text)) >= TEXT, (ground, text)


def test_buttons_can_be_read_on_a_dark_page() -> None:
    (primary,) = re.findall(r"--q-primary: (#\w+) !important", PAGE)
    (filled,) = re.findall(r"\.bg-primary \{ background: (#\w+) !important", PAGE)
    words = [primary, *re.findall(r"\.text-\w+(?:, [^)]*\))? \{ color: (#\w+) !important", PAGE)]
    assert len(words) >= 3
    for word in words:
        assert contrast(rgb(word), rgb(DARK["paper"])) >= TEXT, word
    assert contrast(rgb(filled), rgb("#fff")) >= TEXT


def test_curves_and_their_words_can_be_seen_on_both() -> None:
    """On dark pages, charts and schematics are inverted as a whole."""
    (selectors,) = re.findall(r"^\.body--dark :is\((.*)\) \{ filter: invert\(1\) hue-rotate\(180deg\); \}$", PAGE, re.M)
    assert {".time-plot", ".nicegui-echart", ".schematic"} <= set(selectors.split(", "))
    words = dict(re.findall(r"(\w+): \"(#\w{6})\"", re.findall(r"const MARKS = .*", PLOT)[0]))
    assert len(words) >= 6
    of_schematic = re.findall(r"\.schematic (?:text|\.value|\.signal) \{[^}]*?fill: (#\w{6})", STYLE)
    assert len(of_schematic) == 3
    assert OF_PANEL == OF_VIEWER
    for colour in OF_VIEWER:
        assert contrast(rgb(colour), rgb(LIGHT["paper"])) >= GRAPHICS, colour
        assert contrast(inverted(rgb(colour)), rgb(DARK["paper"])) >= GRAPHICS, colour
    for colour in [*words.values(), *of_schematic]:
        assert contrast(rgb(colour), rgb(LIGHT["paper"])) >= TEXT, colour
        assert contrast(inverted(rgb(colour)), rgb(DARK["paper"])) >= TEXT, colour
    (letter,) = re.findall(r"\.body--dark \.schematic \.letter \{ fill: (#\w+); \}", PAGE)
    assert contrast(inverted(rgb(letter)), rgb(DARK["paper"])) >= TEXT
