"""Docstrings as Markdown."""

from __future__ import annotations

import inspect
import re

from markdown.extensions.toc import slugify  # type: ignore[import-untyped]

from reference_pages.places import DOCS


def docstring(thing: object) -> str:
    """A docstring as Markdown."""
    lines = (inspect.getdoc(thing) or "").split("\n")
    text, inside = [], False
    for line in lines:
        if line.startswith(".. math::"):
            inside = True
            text += ["```math", line.removeprefix(".. math::")]
        elif inside and not line.strip():
            inside = False
            text += ["```", ""]
        else:
            text.append(line)
    joined = "\n".join([*text, "```"] if inside else text)
    joined = re.sub(r":\w+:`~?\.?([^`]+)`", r"`\1`", joined)
    return re.sub(r"(?<!`)``([^`]+)``(?!`)", r"`\1`", joined)


def with_sources(text: str) -> str:
    """The text of a component's page with links to the sections of the theory and to its sources."""
    theory = (DOCS / "theory.md").read_text()
    sections = {head.partition(".")[0]: slugify(head, "-") for head in re.findall(r"^## (\d\. .*)$", theory, re.M)}
    text = re.sub(r"theory §(\d)", lambda found: f"[{found[0]}](../../theory.md#{sections[found[1]]})", text)
    for source in re.findall(r"^\| \[(.+?)\] \|", theory, re.M):
        text = text.replace(f"[{source}]", f"[{source}](../../theory.md)")
    return text
