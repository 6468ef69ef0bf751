"""Equations as SVG, so that the pages need no script and nothing from the network."""

from __future__ import annotations

import html
import re

import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

MATHTEXT = {"frac": r"\dfrac", "tfrac": r"\frac", "le": r"\leq", "ge": r"\geq"}
"""LaTeX commands that matplotlib's mathtext lacks -> their mathtext equivalents."""


def equation(latex: str, size: float = 17.0) -> str:
    """A displayed equation as inline SVG in the colour of the text, with its LaTeX as the accessible label."""
    source = " ".join(latex.split())
    text = re.sub(r"\\(t?frac|le|ge)\b", lambda found: MATHTEXT[found[1]], source)
    path = TextPath((0, 0), f"${text}$", size=size, prop=FontProperties(math_fontfamily="stix"))
    (left, bottom), (right, top) = path.vertices.min(axis=0), path.vertices.max(axis=0)
    width, height = right - left + 2, top - bottom + 2
    return (
        f'<div class="equation"><svg role="img" aria-label="{html.escape(source)}" xmlns="http://www.w3.org/2000/svg" '
        f'width="{width:.1f}" height="{height:.1f}" viewBox="{left - 1:.1f} {-top - 1:.1f} {width:.1f} {height:.1f}" '
        f'fill="currentColor"><path d="{svg_path(path)}"/></svg></div>'
    )


def svg_path(path: TextPath) -> str:
    """The outline of a text as the data of an SVG path (y downwards)."""
    letters = {path.MOVETO: "M", path.LINETO: "L", path.CURVE3: "Q", path.CURVE4: "C"}
    parts = []
    for points, code in path.iter_segments(simplify=False):
        flipped = np.asarray(points).reshape(-1, 2) * (1.0, -1.0)
        parts.append("Z" if code == path.CLOSEPOLY else letters[code] + " ".join(f"{v:.2f}" for v in flipped.ravel()))
    return "".join(parts)
