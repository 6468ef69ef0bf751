"""What a TOML file is, by its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KINDS = {"channels": "rig", "loop": "rig", "devices": "rig", "bodies": "mechanism", "expect": "sequence"}
_KINDS |= {"valves": "catalogue", "inputs": "work cycle", "vary": "study", "columns": "map of a log's columns"}
"""By the first of these keys that a file has."""


def other_kind(source: Mapping[str, Any]) -> str:
    """What a file is that is no circuit; empty if its keys do not tell.

    >>> other_kind({"inputs": {"joystick": {}}}), other_kind({"components": {}})
    ('work cycle', '')
    """
    return next((kind for key, kind in _KINDS.items() if key in source), "")
