"""Parameters of a file: named in ``[parameters]``, used as ``"=bore"`` or in arithmetic such as ``"=pi/4*bore**2"``.

A string that begins with ``=`` is an expression. The name of a parameter alone stands for its value as written,
whatever that is; arithmetic uses quantities: units are converted, and the sum of a length and a pressure is an error.
"""

from __future__ import annotations

import ast
import keyword
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hilserver.errors import Problem, as_sentence, did_you_mean, shown
from hilserver.units import LARGEST, Dimension, dimensional, finite, unit_of, with_unit

MARK = "="
"""First character of an expression."""
_LONGEST = 200
"""Maximum number of characters of an expression."""
_CONSTANTS = {"pi": math.pi}


@dataclass(frozen=True)
class Amount:
    """A quantity: its value in SI units, and the power of each base unit."""

    value: float
    dimension: Dimension = field(default_factory=dict)

    @classmethod
    def read(cls, value: object) -> Amount:
        """A number, or a text with a unit. Raises ValueError for anything else."""
        if isinstance(value, str):
            return cls(*dimensional(value))
        return cls(finite(value))

    def written(self) -> float | str:
        """A plain number, or a text with a unit, as in a file."""
        return with_unit(self.value, self.dimension)

    @property
    def unit(self) -> str:
        """The unit, for messages."""
        return unit_of(self.dimension) or "no unit"

    def __neg__(self) -> Amount:
        return Amount(-self.value, self.dimension)

    def __add__(self, other: Amount) -> Amount:
        self._like(other, "added to")
        return Amount(self.value + other.value, self.dimension)

    def __sub__(self, other: Amount) -> Amount:
        self._like(other, "subtracted from", reverse=True)
        return Amount(self.value - other.value, self.dimension)

    def __mul__(self, other: Amount) -> Amount:
        return Amount(self.value * other.value, _sum(self.dimension, other.dimension, 1.0))

    def __truediv__(self, other: Amount) -> Amount:
        return Amount(self.value / other.value, _sum(self.dimension, other.dimension, -1.0))

    def __pow__(self, other: Amount) -> Amount:
        if other.dimension:
            raise ValueError(f"an exponent has no unit, this one is measured in {other.unit}")
        if self.value < 0.0 and not other.value.is_integer():
            raise ValueError(f"{self.value:g} has no real power {other.value:g}")
        return Amount(self.value**other.value, {unit: p * other.value for unit, p in self.dimension.items() if p})

    def _like(self, other: Amount, action: str, reverse: bool = False) -> None:
        if self.dimension != other.dimension:
            first, second = (other, self) if reverse else (self, other)
            raise ValueError(f"a value in {first.unit} can't be {action} one in {second.unit}")


def _sum(one: Dimension, other: Dimension, sign: float) -> Dimension:
    """Powers of the base units of a product (``sign`` 1) or quotient (-1)."""
    total = {unit: one.get(unit, 0.0) + sign * other.get(unit, 0.0) for unit in {**one, **other}}
    return {unit: power for unit, power in total.items() if power}


def _root(amount: Amount) -> Amount:
    return amount ** Amount(0.5)


_BINARY: Mapping[type[ast.operator], Callable[[Amount, Amount], Amount]] = {
    ast.Add: Amount.__add__,
    ast.Sub: Amount.__sub__,
    ast.Mult: Amount.__mul__,
    ast.Div: Amount.__truediv__,
    ast.Pow: Amount.__pow__,
}
_FUNCTIONS: Mapping[str, Callable[[Amount], Amount]] = {"sqrt": _root}
RESERVED = (*_CONSTANTS, *_FUNCTIONS)
"""Names that no parameter may have."""


class Parameters:
    """The parameters of a file by name. ``given``: values that replace those of the file; they hold no expressions."""

    def __init__(self, table: Mapping[str, Any], given: Mapping[str, Any] | None = None) -> None:
        self._table = {**table, **(given or {})}
        self._given = given or {}
        self._values: dict[str, Any] = {}
        self._open: list[str] = []

    def resolve(self, value: Any) -> Any:
        """The value with all expressions in it replaced by what they mean. Raises ValueError."""
        if is_expression(value):
            return self._evaluate(value[len(MARK) :].strip())
        if isinstance(value, Mapping):
            return {key: entry if key == "description" else self.resolve(entry) for key, entry in value.items()}
        return list(map(self.resolve, value)) if isinstance(value, list | tuple) else value

    def value(self, name: str) -> Any:
        """The value of a parameter. Raises ValueError for an unknown one, and for one that depends on itself."""
        if name not in self._table:
            known = did_you_mean(name, [*self._table, *RESERVED]) if self._table else " There are no [parameters]."
            raise ValueError(f"there is no parameter {shown(name)}.{known}")
        if name in self._open:
            loop = " -> ".join([*self._open[self._open.index(name) :], name])
            raise ValueError(f"the parameters {loop} depend on each other")
        if name not in self._values:
            self._open.append(name)
            try:
                self._values[name] = self._table[name] if name in self._given else self.resolve(self._table[name])
            finally:
                self._open.pop()
        return self._values[name]

    def _evaluate(self, text: str) -> Any:
        if len(text) > _LONGEST:
            raise ValueError(f"an expression has at most {_LONGEST} characters")
        try:
            tree = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise ValueError('it can\'t be read; write it like "=pi/4*bore**2"') from None
        if isinstance(tree, ast.Name) and tree.id not in _CONSTANTS:
            return self.value(tree.id)
        try:
            amount = self._amount(tree)
        except ZeroDivisionError:
            raise ValueError("it divides by zero") from None
        except OverflowError:
            raise ValueError("its value is too large") from None
        if not abs(amount.value) <= LARGEST:
            raise ValueError("its value is too large")
        return amount.written()

    def _amount(self, node: ast.expr) -> Amount:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return Amount(finite(number))
            case ast.Name(id=name):
                return Amount(_CONSTANTS[name]) if name in _CONSTANTS else self._quantity(name)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return -self._amount(inner)
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _BINARY:
                return _BINARY[type(operator)](self._amount(left), self._amount(right))
            case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FUNCTIONS:
                return _FUNCTIONS[name](self._amount(argument))
        text = f"{shown(ast.unparse(node))} is not allowed here: use names of parameters, numbers, + - * / **, ( )"
        raise ValueError(f"{text}, {', '.join(RESERVED)}; give a quantity such as 5 mm a name in [parameters]")

    def _quantity(self, name: str) -> Amount:
        value = self.value(name)
        try:
            return Amount.read(value)
        except ValueError as error:
            raise ValueError(f"parameter {name}: {error}") from None


def is_expression(value: object) -> bool:
    """Whether a value of a file is an expression."""
    return isinstance(value, str) and value.startswith(MARK)


def has_expressions(value: object) -> bool:
    """Whether a value of a file, or one in it, is an expression."""
    if isinstance(value, Mapping):
        return any(map(has_expressions, value.values()))
    return any(map(has_expressions, value)) if isinstance(value, list | tuple) else is_expression(value)


def wrong_names(names: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names that can't be used in an expression, each with the reason."""
    for name in names:
        if name in RESERVED:
            yield name, f"{name} is reserved in expressions: give the parameter another name."
        elif not name.isidentifier() or keyword.iskeyword(name):
            yield name, "the name of a parameter consists of letters, digits and _, and must not be a Python keyword."


class Resolver:
    """Replaces the expressions in tables of a file, and collects what is wrong with them.

    ``expressions``: every expression that was replaced, by the key of its value.
    """

    def __init__(self, parameters: Parameters, file: str, problems: list[Problem]) -> None:
        self.parameters, self.file, self.problems = parameters, file, problems
        self.expressions: dict[str, str] = {}

    def resolved(self, value: Any, key: str) -> Any:
        """A value of the file with what its expressions mean. Those that can't be evaluated stay as they are."""
        if isinstance(value, float | int):  # thousands of them in a table over time
            return value
        if is_expression(value):
            try:
                found = self.parameters.resolve(value)
            except ValueError as error:
                self.problems.append(Problem(as_sentence(f"{shown(value)}: {error}"), key, self.file))
                return value
            self.expressions[key] = value
            return found
        if isinstance(value, Mapping):
            return {
                name: entry if name == "description" else self.resolved(entry, f"{key}.{name}" if key else name)
                for name, entry in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.resolved(entry, f"{key}[{place}]") for place, entry in enumerate(value)]
        return value


def without_parameters(
    table: Mapping[str, Any], given: Mapping[str, Any], file: str, key: str, problems: list[Problem]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The table of a file without its ``[parameters]``, and the expressions in it by key.

    ``given``: values of parameters that replace the file's; ``key``: of the table in the file.
    """
    prefix = f"{key}." if key else ""
    parameters = read_parameters(table.get("parameters", {}), given, f"{prefix}parameters", file, problems)
    resolver = Resolver(parameters, file, problems)
    found = resolver.resolved({name: value for name, value in table.items() if name != "parameters"}, key)
    return found, {name.removeprefix(prefix): text for name, text in resolver.expressions.items()}


def read_parameters(
    table: object, given: Mapping[str, Any], key: str, file: str, problems: list[Problem]
) -> Parameters:
    """The ``[parameters]`` of a file, each of them checked. ``key``: of the table in the file."""
    if not isinstance(table, Mapping):
        problems.append(Problem(f'{shown(table)} is not a table such as {{ bore = "63 mm" }}.', key, file))
        return Parameters({}, given)
    problems += [Problem(text, f"{key}.{name}", file) for name, text in wrong_names(table)]
    found = Parameters(table, {name: value for name, value in given.items() if name in table})
    for name in table:
        try:
            _check(found.value(name))
        except ValueError as error:
            problems.append(Problem(as_sentence(f"{shown(table[name])}: {error}"), f"{key}.{name}", file))
    return found


def _check(value: object) -> None:
    """Raises ValueError for a number that is not finite."""
    if isinstance(value, float):
        finite(value)
