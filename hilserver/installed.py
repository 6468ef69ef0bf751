"""What installed packages offer to hilserver: the entry points of a group (drivers, components)."""

from __future__ import annotations

import functools
import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Any


def installed(group: str) -> list[EntryPoint]:
    """The entry points of a group, sorted by name."""
    return list(_of(group, tuple(sys.path)))


@functools.cache
def _of(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """The same, found once for a search path: variants of a study look for the same driver thousands of times."""
    return tuple(sorted(_all(path).select(group=group), key=lambda entry: entry.name))


@functools.cache
def _all(path: tuple[str, ...]) -> Any:
    """All entry points, read once for a search path: this examines every installed package, which takes 20 ms.

    Their type differs between versions of Python; each can select.
    """
    return entry_points()
