"""Parts of a page in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

Row = tuple[str, ...]


def table(head: tuple[str, ...], rows: Sequence[Row]) -> str:
    """A Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(text: str) -> str:
    """Text escaped for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def fence(language: str, text: str) -> str:
    """A block of code."""
    return f"```{language}\n{text}\n```"
