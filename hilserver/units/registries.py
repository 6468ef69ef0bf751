"""The registries of units: a small one of the usual units, and that of pint, which takes long to load."""

from __future__ import annotations

import functools
import importlib
import re
import sys
from typing import TYPE_CHECKING, Any

from hilserver.units.common import CommonUnits
from hilserver.units.spellings import COMMON_UNITS

if TYPE_CHECKING:
    import pint

_NOT_IN_PINT = ("rev", "rpm", "rps", "percent", "gpm", "lpm", "barg")
WORD = re.compile(r"[^\W\d_][\w°]*|%")
COMMON_WORDS = {*COMMON_UNITS, "%", "dimensionless"}


def registry(*units: str) -> Any:
    """The registry for these units: the small one if it has them all, otherwise pint's, which takes 0.2 s to load.

    A revolution counts as 1: ``1500 rpm`` is 25 1/s, ``28 cm^3/rev`` a volume.
    """
    words = {word for unit in units for word in WORD.findall(unit)}
    return common_registry() if words <= COMMON_WORDS else every_unit()


def _pint() -> Any:
    """The module pint: only where a unit is not among the common ones, because it takes 0.1 s to load.

    It would load Dask where that is installed (extra ``cluster``), which takes as long again and is not used.
    """
    modules: dict[str, Any] = sys.modules
    if {"pint", "dask"} & modules.keys():
        return importlib.import_module("pint")
    modules["dask"] = None
    try:
        return importlib.import_module("pint")
    finally:
        del modules["dask"]


@functools.cache
def common_registry() -> CommonUnits:
    """The small one."""
    return CommonUnits()


@functools.cache
def every_unit() -> pint.UnitRegistry[Any]:
    """All units of pint, and revolutions.

    Without pint's cache folder: it saves 0.1 s, and fails where the home folder can't be written to (a system service).
    """
    units: pint.UnitRegistry[Any] = _pint().UnitRegistry(on_redefinition="ignore")
    for word in _NOT_IN_PINT:
        units.define(f"{word} = {COMMON_UNITS[word]}")
    units.define("revolution = rev")
    units.define("psig = psi")
    return units
