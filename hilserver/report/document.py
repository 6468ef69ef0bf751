"""A report of headings, paragraphs, tables, plots and drawings, as one self-contained HTML file and as Markdown.

Tables are for the terminal, too: importing this module loads neither Matplotlib nor Jinja.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hilserver.errors import HilserverError

if TYPE_CHECKING:
    from jinja2 import Template
    from matplotlib.figure import Figure

_WORDS = re.compile(r"[^-+−–.\d\s]")
"""The start of a cell that holds words, not a number."""


@dataclass(frozen=True)
class Heading:
    """The heading of a section."""

    text: str


@dataclass(frozen=True)
class Listing:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """A table of two columns without a head: names and what they stand for."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Grid:
    """A table: head, rows of texts, caption."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""

    @property
    def text_columns(self) -> tuple[bool, ...]:
        """Whether each column holds words, which are aligned left; numbers are aligned right."""
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(self.head)
        return tuple(any(_WORDS.match(cell) for cell in column) for column in columns)


@dataclass(frozen=True)
class Picture:
    """A plot; ``name`` becomes part of its file's name."""

    name: str
    figure: Figure
    caption: str

    def png(self) -> bytes:
        """The plot as PNG."""
        from hilserver.report.plots import png

        return png(self.figure)


@dataclass(frozen=True)
class Diagram:
    """A drawing as one SVG element; ``name`` becomes part of its file's name."""

    name: str
    svg: str
    caption: str


@dataclass(frozen=True)
class Code:
    """Preformatted text, such as a file; folded in the HTML page."""

    text: str


Block = str | Heading | Listing | Facts | Grid | Picture | Diagram | Code


@dataclass(frozen=True)
class Document:
    """A report: its title and its blocks in order. A block that is a string is a paragraph."""

    title: str
    blocks: Sequence[Block] = field(default_factory=tuple)

    def write(self, folder: Path, stem: str) -> list[Path]:
        """Write ``stem``.html, ``stem``.md and the pictures of the latter. Returns the files; raises HilserverError."""
        pictures = {block.name: block.png() for block in self.blocks if isinstance(block, Picture)}
        drawings = {block.name: block.svg.encode() for block in self.blocks if isinstance(block, Diagram)}
        names = {name: f"{stem}-{name}.png" for name in pictures} | {name: f"{stem}-{name}.svg" for name in drawings}
        files: dict[str, bytes] = {
            f"{stem}.html": self.html(pictures).encode(),
            f"{stem}.md": self.markdown(names).encode(),
            **{names[name]: content for name, content in (pictures | drawings).items()},
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                (folder / name).write_bytes(content)
        except OSError as error:
            raise HilserverError(f"{folder}: cannot be written to: {error.strerror or error}.") from error
        return [folder / name for name in files]

    def html(self, pictures: dict[str, bytes]) -> str:
        """One HTML page that needs no other file; ``pictures``: PNG by name."""
        return _page().render(
            title=self.title,
            blocks=[(block, type(block).__name__) for block in self.blocks],
            pictures={name: base64.b64encode(png).decode() for name, png in pictures.items()},
        )

    def markdown(self, pictures: dict[str, str]) -> str:
        """Markdown; ``pictures``: file by name."""
        return "\n\n".join([f"# {self.title}", *(_markdown(block, pictures) for block in self.blocks)]) + "\n"


@functools.cache
def _page() -> Template:
    """The template of a page; all texts are escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("hilserver.report")
    environment = Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    return environment.get_template("page.html.jinja")


def _markdown(block: Block, pictures: dict[str, str]) -> str:
    match block:
        case str():
            return block
        case Heading():
            return f"## {block.text}"
        case Listing():
            return "\n".join(f"- {item}" for item in block.items)
        case Facts():
            return "\n".join(f"- {name}: {text}" for name, text in block.items)
        case Picture() | Diagram():
            return f"![{block.caption}]({pictures[block.name]})\n\n*{block.caption}*"
        case Code():
            return f"```text\n{block.text}\n```"
        case Grid():
            lines = [block.head, ("---", *("---:" for _ in block.head[1:])), *block.rows]
            table = "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)
            return f"{table}\n\n{block.caption}" if block.caption else table


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
