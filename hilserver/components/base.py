"""The parts of a component: datasheet values, ports, states, and kernels whose argument names are the contract.

See docs/architecture.md for the naming contract of kernels.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from hilserver.numerics.source import source_of
from hilserver.units import ATMOSPHERE, Density, KinematicViscosity, Modulus, Number, Pressure

Parameters = Mapping[str, Any]
"""Kernel parameters by name: floats, and Tables under names that begin with ``table_``."""


class Datasheet(BaseModel):
    """Base of everything read from a configuration: frozen, unknown keys refused, defaults validated."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False, defer_build=True)


class Fluid(Datasheet):
    """The oil of a circuit, shared by its volumes and lines."""

    bulk_modulus: Modulus = Field(default="1.5e9 Pa", gt=0, description="bulk modulus of the oil without air, B_o")
    air_fraction: Number = Field(
        default=0.0, ge=0, lt=0.5, description="volume fraction of free air at atmospheric pressure, alpha_0"
    )
    polytropic_exponent: Number = Field(
        default=1.4, ge=1, le=1.67, description="polytropic exponent of the free air, kappa"
    )
    density: Density = Field(default="870 kg/m^3", gt=0, description="density of the oil")
    viscosity: KinematicViscosity = Field(
        default="46 mm^2/s",
        gt=0,
        description="kinematic viscosity of the oil, nu; it determines the drop below which the flow through an "
        "orifice is laminar",
    )
    vapour_pressure: Pressure = Field(
        default="-1 bar",
        ge=-ATMOSPHERE,
        le=0,
        description="vapour pressure (gauge), below which no node's pressure falls",
        examples=["-1 bar"],
    )

    def parameters(self) -> dict[str, float]:
        """Kernel parameters of a volume of this oil."""
        return {
            "B_o": self.bulk_modulus,
            "alpha_0": self.air_fraction,
            "kappa": self.polytropic_exponent,
            "p_0": ATMOSPHERE,
        }


@dataclass(frozen=True)
class State:
    """A state of a component: unit, initial value, hard limits, typical size (numbers or names of parameters)."""

    name: str
    unit: str
    initial: float | str = 0.0
    lower: float | str = -float("inf")
    upper: float | str = float("inf")
    scale: float | str = 1.0


@dataclass(frozen=True)
class Memory:
    """A memory that is kept from step to step without integration: ``size`` values, set by sampled kernels."""

    name: str
    size: int = 1
    initial: float | str = 0.0


@dataclass(frozen=True)
class Table:
    """A curve as a kernel parameter: y over increasing x, read by :func:`hilserver.numerics.table.interpolate`."""

    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Kernel:
    """A function of scalars, to be compiled, with its contract: argument and result names."""

    function: Callable[..., Any]
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    sampled: bool = False

    @property
    def name(self) -> str:
        """Unique name: module and function."""
        return f"{self.function.__module__}.{self.function.__qualname__}"


class Component(Datasheet):
    """Base of all components. Fields are datasheet values; class attributes define its connections.

    ``hydraulic``, ``mechanical``, ``rotational``: port names, connected by ``ports = { P = "supply" }`` in a circuit.
    ``inputs``, ``outputs``: signal ports, connected by a key of their own name (``command = "joystick"``).
    ``states``: its integrated states. ``closed``: those of a valve that is closed or at rest, and their values there.
    ``kernels``: filled by the :func:`kernel` decorator.
    """

    type_name: ClassVar[str] = ""
    hydraulic: ClassVar[tuple[str, ...]] = ()
    mechanical: ClassVar[tuple[str, ...]] = ()
    rotational: ClassVar[tuple[str, ...]] = ()
    inputs: ClassVar[tuple[str, ...]] = ()
    outputs: ClassVar[tuple[str, ...]] = ()
    input_defaults: ClassVar[Mapping[str, float]] = {}
    states: ClassVar[tuple[State, ...]] = ()
    closed: ClassVar[Mapping[str, float]] = {}
    memories: ClassVar[tuple[Memory, ...]] = ()
    kernels: ClassVar[list[Kernel]] = []

    description: str = Field(default="", description="free text for the reader of the circuit")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.kernels = []

    @classmethod
    def embed(cls, values: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
        """The datasheet values as given; the names of files (relative to ``folder``) are replaced by their contents.

        So a circuit is self-contained in the log, in a replay and in a switch. Raises ValueError with the reason.
        """
        return values

    @classmethod
    def names_files(cls) -> bool:
        """Whether its datasheet values may name files."""
        return cls.embed.__func__ is not Component.embed.__func__  # type: ignore[attr-defined]

    def positions(self) -> Mapping[str, tuple[float, float]]:
        """Mechanical ports with a limited position, m: an initial position must lie within."""
        return {}

    def contacts(self) -> Mapping[str, tuple[float, ...]]:
        """Mechanical ports with stops: the positions, m, at which these act fully."""
        return {}

    def is_sampled(self) -> bool:
        """Whether its sampled kernels have anything to do; those of a part that needs none are left out."""
        return True

    def has_mass(self) -> bool:
        """Whether it adds a mass to the nodes to which its kernels add one; a part's own mass may be neglected."""
        return True

    def parameters(self, fluid: Fluid) -> Parameters:
        """Semi-empirical kernel parameters (SI) from the datasheet values."""
        raise NotImplementedError


AnyComponent = TypeVar("AnyComponent", bound=type[Component])
AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def kernel(component: type[Component]) -> Callable[[AnyFunction], AnyFunction]:
    """Make a function of scalars a kernel of ``component``; the function itself is returned unchanged."""
    return _register(component, sampled=False)


def sampled(component: type[Component]) -> Callable[[AnyFunction], AnyFunction]:
    """Like :func:`kernel`, but run once before each integration step: it returns ``next_<memory>``, not derivatives.

    ``next_<state>`` sets a state, for one that has no motion of its own (a spool without lag).
    """
    return _register(component, sampled=True)


def _register(component: type[Component], sampled: bool) -> Callable[[AnyFunction], AnyFunction]:
    def register(function: AnyFunction) -> AnyFunction:
        arguments = tuple(inspect.signature(function).parameters)
        component.kernels.append(Kernel(function, arguments, _result_names(function), sampled))
        return function

    return register


def _result_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names in the function's one return statement."""
    returns = [node for node in _statements(_definition(function)) if isinstance(node, ast.Return)]
    where = f"kernel {function.__module__}.{function.__qualname__}"
    if len(returns) != 1 or returns[0].value is None:
        raise TypeError(f"{where}: must have exactly one return statement, has {len(returns)}")
    value = returns[0].value
    names = value.elts if isinstance(value, ast.Tuple) else [value]
    if not all(isinstance(name, ast.Name) for name in names):
        raise TypeError(f"{where}: must return plain names such as q_P, dK (they are the contract)")
    return tuple(name.id for name in names if isinstance(name, ast.Name))


def _definition(function: Callable[..., Any]) -> ast.FunctionDef:
    """The syntax tree of a function. Raises OSError if its source can't be read, or has changed since."""
    assert isinstance(function, FunctionType)
    code = function.__code__
    linecache.checkcache(code.co_filename)
    lines = textwrap.indent(source_of(function), " ")  # a block, because they may be indented already
    with contextlib.suppress(SyntaxError):
        for node in _statements(ast.parse(f"if True:\n{lines}")):
            if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
                return node
    raise OSError(f"the source of {code.co_name} ({code.co_filename}) can't be read")


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements within a node. (`ast.walk` visits every expression, too, which takes several times as long.)"""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for statement in getattr(node, block, ()):
            yield statement
            yield from _statements(statement)
