"""A report of headings, paragraphs, tables, plots and drawings, as one self-contained HTML file and as Markdown."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from io import BytesIO
from pathlib import Path

from matplotlib.figure import Figure

from hilserver.errors import HilserverError

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72em; margin: 2em auto; padding: 0 1em; color: #1e293b }
h1, h2 { line-height: 1.2; color: #0f4c81; break-after: avoid }
h1 { border-bottom: 3px solid; padding-bottom: 0.3em }
h2 { margin-top: 2em; border-bottom: 1px solid #cbd5e1; padding-bottom: 0.2em }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums; font-size: 0.92em }
caption { caption-side: bottom; text-align: left; color: #64748b; padding-top: 0.4em }
th, td { padding: 0.25em 0.8em; border-bottom: 1px solid #e2e8f0; text-align: right; vertical-align: bottom }
thead th { background: #f1f5f9; border-bottom: 2px solid #cbd5e1 }
tr { break-inside: avoid }
td { vertical-align: top }
th:first-child, td:first-child, .facts td, .text { text-align: left }
.facts th { font-weight: 500; color: #64748b; padding-left: 0; vertical-align: top }
tr.best { font-weight: 600 }
img { max-width: 100%; height: auto }
figure { margin: 1.5em 0; break-inside: avoid }
figure svg { display: block; width: 100%; height: auto; margin: 0 auto }
figcaption { color: #64748b; font-size: 0.92em }
details { margin: 0.5em 0 }
summary { cursor: pointer }
.wide { overflow-x: auto }
@media print {
  body { max-width: none; margin: 0; font-size: 10pt }
  figure svg { max-height: 22cm }
  thead th { print-color-adjust: exact }
  .wide { overflow: visible }
}
"""


_WORDS = re.compile(r"[^-+−–.\d\s]")
"""How a cell begins that holds no number."""


@dataclass(frozen=True)
class Heading:
    """A heading of a section."""

    text: str


@dataclass(frozen=True)
class Listing:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """What is called what: a table of words and texts."""

    items: tuple[tuple[str, str], ...]


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
class Drawing:
    """A drawing as one SVG element; ``name`` is part of its file's name, ``about`` its caption."""

    name: str
    svg: str
    about: str


@dataclass(frozen=True)
class Code:
    """Text that stands as it is, such as a file; folded in the page."""

    text: str


Block = str | Heading | Listing | Facts | Grid | Picture | Drawing | Code


@dataclass(frozen=True)
class Document:
    """A report: a title, and what follows it in order; a text is a paragraph."""

    title: str
    blocks: Sequence[Block] = field(default_factory=tuple)

    def write(self, folder: Path, stem: str) -> list[Path]:
        """Write ``stem``.html, ``stem``.md, and the pictures that the latter shows. Raises HilserverError."""
        pictures = {block.name: block.png() for block in self.blocks if isinstance(block, Picture)}
        drawings = {block.name: block.svg.encode() for block in self.blocks if isinstance(block, Drawing)}
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
        case Facts():
            rows = "\n".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in block.items)
            return f'<table class="facts"><tbody>\n{rows}\n</tbody></table>'
        case Picture():
            data = base64.b64encode(pictures[block.name]).decode()
            return (
                f'<figure><img alt="{escape(block.about)}" src="data:image/png;base64,{data}">'
                f"<figcaption>{escape(block.about)}</figcaption></figure>"
            )
        case Drawing():
            return f"<figure>{block.svg}<figcaption>{escape(block.about)}</figcaption></figure>"
        case Code():
            lines = block.text.count("\n") + 1
            return f"<details><summary>{lines} lines</summary><pre>{escape(block.text)}</pre></details>"
        case Grid():
            classes = [' class="text"' if _is_text(column) else "" for column in zip(*block.rows, strict=True)]
            head = _cells("th", block.head, classes or [""] * len(block.head))
            rows = "\n".join(f"<tr>{_cells('td', row, classes)}</tr>" for row in block.rows)
            caption = f"<caption>{escape(block.caption)}</caption>" if block.caption else ""
            body = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>"
            return f'<div class="wide"><table>{caption}{body}</table></div>'


def _cells(tag: str, cells: Sequence[str], classes: Sequence[str]) -> str:
    texts = (escape(cell).replace("\n", "<br>") for cell in cells)
    return "".join(f"<{tag}{kind}>{text}</{tag}>" for text, kind in zip(texts, classes, strict=True))


def _is_text(column: Sequence[str]) -> bool:
    """Whether a column of a table holds words, which begin at the left; numbers end at the right."""
    return any(_WORDS.match(cell) for cell in column)


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
        case Picture() | Drawing():
            return f"![{block.about}]({pictures[block.name]})\n\n*{block.about}*"
        case Code():
            return f"```text\n{block.text}\n```"
        case Grid():
            lines = [block.head, ("---", *("---:" for _ in block.head[1:])), *block.rows]
            table = "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)
            return f"{table}\n\n{block.caption}" if block.caption else table


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
