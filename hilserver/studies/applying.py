"""Writes fitted values into a circuit file: comments and order are kept."""

from __future__ import annotations

import re
from datetime import date
from math import floor, isfinite, log10
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import Item

from hilserver.circuit.library import circuit_library
from hilserver.parameters import is_expression
from hilserver.simulation.circuit_run import read_circuit_file
from hilserver.studies.fitting import FitOfCircuit, FreeParameter
from hilserver.studies.quantities import changeable
from hilserver.tolerances import MARK, toleranced
from hilserver.units import from_si, shown_unit

_UNIT = re.compile(r"\s*[-+.\deE]+\s*(.*)")


def with_fitted(text: str, result: FitOfCircuit, day: date) -> tuple[str, list[str]]:
    """The text of the circuit file with the values found, each with its 95 % interval as tolerance.

    Also returns what was left as it is, with the reason, as sentences.
    """
    document, left = tomlkit.parse(text), []
    known = changeable(result.circuit)
    for each in result.free:
        width = result.interval(each.key)
        if not isfinite(width):
            left.append(f"{each.key} keeps its value: {_why_left(result, each)}.")
            continue
        reason = _put(document, known[each.key].path, result.value(each.key), width, each.unit, day)
        if reason:
            left.append(f"{each.key} {reason}.")
    if any(not result.is_known(each.key) and each.key not in result.without_influence for each in result.free):
        left.append(
            "The values that are written were found together with values that are not: with this file, the deviations "
            "are larger than reported. Fix one value of each group, and fit the others again."
        )
    return tomlkit.dumps(document), left


def _why_left(result: FitOfCircuit, parameter: FreeParameter) -> str:
    """Why a value is not written."""
    key = parameter.key
    if key in result.without_influence:
        return "nothing that was measured depends on it"
    if key in result.opened:
        return f"the log only shows that it is {result.limit(parameter)}"
    others = dict.fromkeys(name for group in result.inseparable if key in group for name in group if name != key)
    return f"it can't be told apart from {' and '.join(others)}" if others else "the one found is at a bound"


def _put(document: Any, path: tuple[str, ...], value: float, width: float, unit: str, day: date) -> str:
    """Write a value; returns why it can't be, empty if it was."""
    table: Any = document
    for name in path[:-1]:
        if not hasattr(table, "keys") or name not in table:
            return "is not written in this file, but in one that it names: change it there"
        table = table[name]
    old = table.get(path[-1])
    if is_expression(old):
        return f"follows from {old}: fit the parameter instead"
    item = tomlkit.item(_written(old, value, width, unit))
    if isinstance(old, Item) and old.trivia.comment:
        item.trivia.comment_ws, item.trivia.comment = old.trivia.comment_ws, old.trivia.comment
    elif not hasattr(table, "_is_inline") and not isinstance(table, tomlkit.items.InlineTable):
        item.trivia.comment_ws, item.trivia.comment = "  ", f"# fitted on {day}, with its 95 % interval"
    table[path[-1]] = item
    return ""


def _written(old: object, value: float, width: float, unit: str) -> str:
    """A value with its interval, in the unit of the old one."""
    shown = _unit_of(old) if old is not None else shown_unit(unit)[0]
    factor = from_si(1.0, unit, shown) if unit and shown else 1.0
    value, width = factor * value, factor * width
    digits = max(1 - floor(log10(width)), 0)
    number, interval = f"{value:.{digits}f}", f"{width:.{digits}f}"
    return f"{number} {shown} {MARK} {interval} {shown}".replace(f"  {MARK}", f" {MARK}").rstrip()


def _unit_of(old: object) -> str:
    """The unit in which a value is written."""
    if isinstance(old, dict):
        old = old.get("value")
    if not isinstance(old, str):
        return ""
    text = str(toleranced(old)) if MARK in old else str(old)
    found = _UNIT.fullmatch(text)
    return found[1] if found is not None else ""


def load_circuit(file: Path) -> None:
    """Raises HilserverError if a circuit file can't be loaded."""
    read_circuit_file(file, circuit_library(file))
