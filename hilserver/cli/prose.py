"""Sentences in the terminal, wrapped between words."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def say(text: str, console: Console | None = None, indent: int = 0) -> None:
    """Print a sentence: wrapped to the width of the terminal, or in one line where the output goes elsewhere.

    A word that is too long for a line, such as a file name, is not broken. ``console``: default: a new one. ``indent``:
    columns before all lines but the first.
    """
    from hilserver.cli.tables import new_console

    to = console or new_console()
    to.print(wrapped(text, to.width, indent) if to.is_terminal else text, soft_wrap=True)


def wrapped(text: str, width: int, indent: int = 0) -> str:
    """Each line of a text in lines of at most this width, as far as its words allow; ``indent``: of the further ones.

    >>> wrapped("the valve is fast enough", 12).splitlines()
    ['the valve is', 'fast enough']
    """
    lines = textwrap.TextWrapper(
        max(width, 1), subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(map(lines.fill, text.split("\n")))
