"""What the rig's reactions and its playouts have in common: the loop knows them only by their numbers in the row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from hilserver.numerics.arrays import Floats
from hilserver.rig.rig import Rig
from hilserver.tick.columns import is_whole

Status = TypeVar("Status")


class NumberedTable(ABC, Generic[Status]):
    """The names of ``count`` reactions or playouts, by number. ``channels``: the row's columns by the channels' names.

    ``kind``: which of them, as the log calls it.
    """

    def __init__(self, rig: Rig, channels: Mapping[str, str], kind: str, count: int) -> None:
        self._names: dict[int, str] = {}
        self._news: list[dict[str, Any]] = []
        self._rig = rig
        self._channels = {name: column for name, column in channels.items() if not is_whole(column)}
        self._kind, self._count = kind, count

    def name(self, number: int) -> str:
        """The name of the one with this number."""
        return self._names.get(number, f"{number}")

    def status(self, row: Floats) -> dict[str, Status]:
        """The state of each that is not free, by name."""
        return {self.name(n): self._status(row, n) for n in range(self._count) if self._state(row, n)}

    def news(self) -> list[dict[str, Any]]:
        """What the log notes of those that have begun since the last call."""
        news, self._news = self._news, []
        return news

    def _begin(self, number: int, name: str, text: str, **more: Any) -> dict[str, Any]:
        """Give a number this name; returns what the log notes of it."""
        about = {self._kind: {"number": number, "name": name, "text": text, **more}}
        self._names[number] = name
        self._news.append(about)
        return about

    @abstractmethod
    def _state(self, row: Floats, number: int) -> int:
        """The state in the row; 0: free."""

    @abstractmethod
    def _status(self, row: Floats, number: int) -> Status:
        """The state that is published."""
