"""Tables in the terminal without truncated cells, and the console that prints them.

Importing this module loads Rich.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

import rich.table
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.text import Text

PIPED = 1000
"""Width of the output where it is no terminal and nothing else is given (COLUMNS)."""
BOUNDLESS = 10_000


def new_console(stderr: bool = False) -> Console:
    """The console for results: without colours of its own, and wide where the output goes to a file or a program."""
    console = Console(highlight=False, markup=False, emoji=False, stderr=stderr)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED
    return console


class TerminalTable(rich.table.Table):
    """A table that fits into any width: cells wrap between words, never within one.

    Where even the longest words are too wide side by side, each row becomes a list of its cells with their heads.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        least, most = self._widths(_longest_word), self._widths(_longest_line)
        lines = Measurement.get(console, options.update(width=BOUNDLESS), self).minimum - sum(least)
        room = options.max_width - lines
        if sum(least) > room:
            yield from self._as_list()
            return
        for column, width in zip(self.columns, fitted(least, most, room), strict=True):
            column.width, column.no_wrap = width, False
        yield from super().__rich_console__(console, options)

    def _widths(self, measure: Callable[[str], int]) -> list[int]:
        """The largest of this measure in each column."""
        return [
            max((measure(_plain(cell)) for cell in (column.header, *column.cells)), default=0)
            for column in self.columns
        ]

    def _as_list(self) -> RenderResult:
        if self.title:
            yield Text(_plain(self.title), style="italic")
        heads = [_plain(column.header) for column in self.columns]
        for cells in zip(*(column.cells for column in self.columns), strict=True):
            shown = [(head, _plain(cell)) for head, cell in zip(heads, cells, strict=True) if _plain(cell).strip()]
            for number, (head, text) in enumerate(shown):
                line = Text.assemble((f"{head}: " if head else "", "bold"), text)
                yield Padding(line, (0, 0, 0, 2 if number else 0), expand=False)
            yield Text()
        if self.caption:
            yield Text(_plain(self.caption), style="italic")


def fitted(least: Sequence[int], most: Sequence[int], room: int) -> list[int]:
    """Widths between the minimum and the maximum that each column can use, ``room`` in total if not all fit at their
    maximum.

    The remaining width is shared in proportion to what each column could still use.

    >>> fitted([5, 10], [5, 40], 60), fitted([5, 10, 10], [5, 40, 25], 40)
    ([5, 40], [5, 20, 15])
    """
    if sum(most) <= room:
        return list(most)
    wanted = [wide - narrow for narrow, wide in zip(least, most, strict=True)]
    spare, total = room - sum(least), sum(wanted)
    widths = [narrow + spare * more // total for narrow, more in zip(least, wanted, strict=True)]
    for place in sorted(range(len(widths)), key=lambda k: most[k] - widths[k], reverse=True)[: room - sum(widths)]:
        widths[place] += 1
    return widths


def _plain(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)


def _longest_word(text: str) -> int:
    return _longest(text.split())


def _longest_line(text: str) -> int:
    return _longest(text.splitlines())


def _longest(parts: Iterable[str]) -> int:
    return max(map(cell_len, parts), default=0)
