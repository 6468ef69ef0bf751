"""What a TOML file is, by its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KINDS = {"channels": "rig", "loop": "rig", "devices": "rig", "bodies": "mechanism"}
_KINDS |= {"components": "circuit", "mechanisms": "circuit", "expect": "sequence", "step": "sequence"}
_KINDS |= {"fault": "sequence", "valves": "catalogue", "inputs": "work cycle", "vary": "study", "figures": "study"}
_KINDS |= {"columns": "map of a log's columns", "tabs": "layout", "align": "layout", "answers": "answers"}
_KINDS |= dict.fromkeys(("host", "port", "user", "password_file", "ca_file", "cert_file", "key_file"), "login")
"""By the first of these keys that a file has."""


def kind_of(source: Mapping[str, Any]) -> str:
    """What a file is; empty if its keys do not tell.

    >>> kind_of({"inputs": {"joystick": {}}}), kind_of({"components": {}, "ports": ["A"]}), kind_of({})
    ('work cycle', 'sub-circuit', '')
    >>> kind_of({"tabs": []}), kind_of({"rig": "demo", "host": "192.168.0.2"})
    ('layout', 'login')
    """
    kind = next((kind for key, kind in _KINDS.items() if key in source), "")
    if kind == "circuit" and "ports" in source:
        return "sub-circuit"
    return kind or ("calibration" if _are_histories(source) else "")


def _are_histories(source: Mapping[str, Any]) -> bool:
    """Whether these may be lists of calibrations, one for each channel."""
    tables = all(isinstance(each, list) and all(isinstance(e, Mapping) for e in each) for each in source.values())
    return tables and any({"source", "date"} & entry.keys() for each in source.values() for entry in each)
