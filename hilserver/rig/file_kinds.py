"""What a TOML file is, by its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KINDS = {"channels": "rig", "loop": "rig", "devices": "rig", "bodies": "mechanism"}
_KINDS |= {"components": "circuit", "mechanisms": "circuit", "expect": "sequence", "step": "sequence"}
_KINDS |= {"valves": "catalogue", "inputs": "work cycle", "vary": "study", "figures": "study"}
_KINDS |= {"columns": "map of a log's columns"}
"""By the first of these keys that a file has."""


def kind_of(source: Mapping[str, Any]) -> str:
    """What a file is; empty if its keys do not tell.

    >>> kind_of({"inputs": {"joystick": {}}}), kind_of({"components": {}, "ports": ["A"]}), kind_of({})
    ('work cycle', 'sub-circuit', '')
    """
    kind = next((kind for key, kind in _KINDS.items() if key in source), "")
    if kind == "circuit" and "ports" in source:
        return "sub-circuit"
    return kind or ("calibration" if source and all(map(_is_history, source.values())) else "")


def _is_history(entries: object) -> bool:
    """Whether this may be the list of the calibrations of a channel."""
    return isinstance(entries, list) and all(isinstance(each, Mapping) and "source" in each for each in entries)
