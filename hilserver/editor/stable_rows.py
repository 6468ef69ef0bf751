"""Rows of elements that are kept while they are still needed: a click on one is not lost while others change.

A click begins while the box that has been edited loses the focus, which writes its value and draws the page anew. The
browser forgets the click if its element is replaced before the mouse button is released.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from nicegui import ui
from nicegui.element import Element

Key = TypeVar("Key", bound=Hashable)


class StableRows(Generic[Key]):
    """The rows of a container, one for each key; ``make`` makes the element of a key, in the present container."""

    def __init__(self, container: Element, make: Callable[[Key], Element]) -> None:
        self._container, self._make = container, make
        self._rows: dict[Key, Element] = {}

    def show(self, keys: Sequence[Key]) -> None:
        """Show the rows of these keys in this order; those that are there already stay."""
        for key in [key for key in self._rows if key not in keys]:
            self._rows.pop(key).delete()
        for index, key in enumerate(dict.fromkeys(keys)):
            if key not in self._rows:
                with self._container:
                    self._rows[key] = self._make(key)
            row = self._rows[key]
            if self._container.default_slot.children.index(row) != index:
                row.move(target_index=index)

    def __getitem__(self, key: Key) -> Element:
        return self._rows[key]


def text_of(row: Element) -> ui.label:
    """The text in a row that has nothing else."""
    (label,) = row
    assert isinstance(label, ui.label)
    return label
