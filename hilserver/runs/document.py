"""A report of headings, paragraphs, tables and pictures, as one self-contained HTML file and as Markdown."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from io import BytesIO
from pathlib import Path

from matplotlib.figure import Figure

from hilserver.errors import HilserverError

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72em; margin: 2em auto; padding: 0 1em; color: #222 }
h1, h2 { line-height: 1.2; margin-top: 1.6em }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums; font-size: 0.92em }
caption { caption-side: bottom; text-align: left; color: #666; padding-top: 0.4em }
th, td { padding: 0.25em 0.8em; border-bottom: 1px solid #ddd; text-align: right; vertical-align: bottom }
th:first-child, td:first-child { text-align: left }
tr.best { font-weight: 600 }
img { max-width: 100%; height: auto }
figure { margin: 1.5em 0 }
figcaption { color: #666; font-size: 0.92em }
.wide { overflow-x: auto }
"""


@dataclass(frozen=True)
class Heading:
    """A heading of a section."""

    text: str


@dataclass(frozen=True)
class Listing:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """A table: its head, its rows as texts, a caption."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


@dataclass(frozen=True)
class Picture:
    """A plot; ``name`` is part of its file's name, ``about`` its caption."""

    name: str
    figure: Figure
    about: str

    def png(self) -> bytes:
        """The plot as PNG."""
        buffer = BytesIO()
        self.figure.savefig(buffer, dpi=120, format="png")
        return buffer.getvalue()


@dataclass(frozen=True)
class Code:
    """Text that stands as it is, such as a file; folded in the page."""

    text: str


Block = str | Heading | Listing | Grid | Picture | Code


@dataclass(frozen=True)
class Document:
    """A report: a title, and what follows it in order; a text is a paragraph."""

    title: str
    blocks: Sequence[Block] = field(default_factory=tuple)

    def write(self, folder: Path, stem: str) -> list[Path]:
        """Write ``stem``.html, ``stem``.md and the pictures that the latter shows. Raises HilserverError."""
        pictures = {
            block.name: (f"{stem}-{block.name}.png", block.png()) for block in self.blocks if isinstance(block, Picture)
        }
        files: dict[str, bytes] = {
            f"{stem}.html": self.html({name: data for name, (_, data) in pictures.items()}).encode(),
            f"{stem}.md": self.markdown({name: file for name, (file, _) in pictures.items()}).encode(),
            **dict(pictures.values()),
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                (folder / name).write_bytes(content)
        except OSError as error:
            raise HilserverError(f"{folder}: can't be written to: {error.strerror or error}.") from error
        return [folder / name for name in files]

    def html(self, pictures: dict[str, bytes]) -> str:
        """One HTML page that needs nothing else; ``pictures``: PNG by name."""
        body = "\n".join(_html(block, pictures) for block in self.blocks)
        return (
            f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(self.title)}</title>\n'
            f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{escape(self.title)}</h1>\n{body}\n</body>\n</html>\n"
        )

    def markdown(self, pictures: dict[str, str]) -> str:
        """Markdown; ``pictures``: file by name."""
        return "\n\n".join([f"# {self.title}", *(_markdown(block, pictures) for block in self.blocks)]) + "\n"


def _html(block: Block, pictures: dict[str, bytes]) -> str:
    match block:
        case str():
            return f"<p>{escape(block)}</p>"
        case Heading():
            return f"<h2>{escape(block.text)}</h2>"
        case Listing():
            return "<ul>\n" + "\n".join(f"<li>{escape(item)}</li>" for item in block.items) + "\n</ul>"
        case Picture():
            data = base64.b64encode(pictures[block.name]).decode()
            return (
                f'<figure><img alt="{escape(block.about)}" src="data:image/png;base64,{data}">'
                f"<figcaption>{escape(block.about)}</figcaption></figure>"
            )
        case Code():
            lines = block.text.count("\n") + 1
            return f"<details><summary>{lines} lines</summary><pre>{escape(block.text)}</pre></details>"
        case Grid():
            head = "".join(f"<th>{_lines(cell)}</th>" for cell in block.head)
            rows = "\n".join("<tr>" + "".join(f"<td>{_lines(c)}</td>" for c in row) + "</tr>" for row in block.rows)
            caption = f"<caption>{escape(block.caption)}</caption>" if block.caption else ""
            body = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>"
            return f'<div class="wide"><table>{caption}{body}</table></div>'


def _lines(cell: str) -> str:
    return escape(cell).replace("\n", "<br>")


def _markdown(block: Block, pictures: dict[str, str]) -> str:
    match block:
        case str():
            return block
        case Heading():
            return f"## {block.text}"
        case Listing():
            return "\n".join(f"- {item}" for item in block.items)
        case Picture():
            return f"![{block.about}]({pictures[block.name]})\n\n*{block.about}*"
        case Code():
            return f"```text\n{block.text}\n```"
        case Grid():
            lines = [block.head, ("---", *("---:" for _ in block.head[1:])), *block.rows]
            table = "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)
            return f"{table}\n\n{block.caption}" if block.caption else table


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
