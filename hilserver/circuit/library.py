"""Which component types there are, and the contract of their kernels."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import entry_points

import hilserver.components
from hilserver.components.base import Component, Kernel


class Role(Enum):
    """What a kernel's argument or result is; the value is the prefix of its name."""

    PRESSURE = "p_"
    FLOW = "q_"
    CAPACITANCE = "C_"
    POSITION = "x_"
    VELOCITY = "v_"
    FORCE = "F_"
    MASS = "m_"
    ANGLE = "phi_"
    SPEED = "w_"
    TORQUE = "T_"
    INERTIA = "J_"
    SIGNAL = "u_"
    DERIVATIVE = "d"
    STATE = "state"
    MEMORY = "memory"
    NEXT = "next_"
    TIME = "t"
    PARAMETER = "parameter"
    TABLE = "table_"
    OBSERVABLE = "observable"


_HYDRAULIC = {Role.PRESSURE, Role.FLOW, Role.CAPACITANCE}
_MECHANICAL = {Role.POSITION, Role.VELOCITY, Role.FORCE, Role.MASS}
_ROTATIONAL = {Role.ANGLE, Role.SPEED, Role.TORQUE, Role.INERTIA}
_MOTION = {Role.POSITION, Role.VELOCITY, Role.ANGLE, Role.SPEED}
ARGUMENT_ROLES = {Role.PRESSURE, Role.SIGNAL, *_MOTION}
SUMMED = {Role.FLOW, Role.FORCE, Role.TORQUE, Role.CAPACITANCE, Role.MASS, Role.INERTIA}
RESISTING = {Role.CAPACITANCE, Role.MASS, Role.INERTIA}
"""Sums that divide: they stand behind the sum of flow, force or torque of the same node."""
WRITTEN = {Role.PRESSURE, Role.SIGNAL, *_MOTION}
RECORDED = {Role.FLOW, Role.FORCE, Role.TORQUE, Role.OBSERVABLE}


@dataclass(frozen=True)
class Term:
    """One argument or result of a kernel: its role, and the port, state or parameter it names."""

    role: Role
    name: str
    word: str

    @property
    def from_parameters(self) -> bool:
        return self.role is Role.PARAMETER


@dataclass(frozen=True)
class Contract:
    """A kernel of a component type, its arguments and results understood; ``kind`` is its number in the dispatch."""

    kind: int
    component: type[Component]
    kernel: Kernel
    arguments: tuple[Term, ...]
    results: tuple[Term, ...]


def _ports(component: type[Component], role: Role, as_result: bool) -> tuple[str, ...]:
    if role in _HYDRAULIC:
        return component.hydraulic
    if role in _MECHANICAL:
        return component.mechanical
    if role in _ROTATIONAL:
        return component.rotational
    if role is Role.SIGNAL:
        return component.outputs if as_result else component.inputs
    return ()


def argument(component: type[Component], word: str) -> Term:
    """Understand an argument's name."""
    if word in {state.name for state in component.states}:
        return Term(Role.STATE, word, word)
    if word in {memory.name for memory in component.memories}:
        return Term(Role.MEMORY, word, word)
    if word.startswith(Role.TABLE.value):
        return Term(Role.TABLE, word, word)
    if word == "t":
        return Term(Role.TIME, word, word)
    for role in ARGUMENT_ROLES:
        port = word.removeprefix(role.value)
        if port != word and port in _ports(component, role, as_result=False):
            return Term(role, port, word)
    return Term(Role.PARAMETER, word, word)


def result(component: type[Component], word: str) -> Term:
    """Understand a result's name."""
    if word.startswith("d") and word[1:] in {state.name for state in component.states}:
        return Term(Role.DERIVATIVE, word[1:], word)
    if word.removeprefix("next_") in {memory.name for memory in component.memories}:
        return Term(Role.NEXT, word.removeprefix("next_"), word)
    for role in (*SUMMED, *WRITTEN):
        port = word.removeprefix(role.value)
        if port != word and port in _ports(component, role, as_result=True):
            return Term(role, port, word)
    return Term(Role.OBSERVABLE, word, word)


class Library:
    """All component types by ``type_name`` and all kernels by kind, in a fixed order (sorted by type name)."""

    def __init__(self, types: Iterable[type[Component]]) -> None:
        self.types = {component.type_name: component for component in sorted(types, key=lambda c: c.type_name)}
        self.contracts: list[Contract] = []
        for component in self.types.values():
            for kernel in component.kernels:
                self.contracts.append(_contract(len(self.contracts), component, kernel))

    def contracts_of(self, component: type[Component]) -> list[Contract]:
        """The kernels of one component type."""
        return [contract for contract in self.contracts if contract.component is component]


def _contract(kind: int, component: type[Component], kernel: Kernel) -> Contract:
    return Contract(
        kind,
        component,
        kernel,
        tuple(argument(component, word) for word in kernel.arguments),
        tuple(result(component, word) for word in kernel.results),
    )


def _types_in(module: object) -> list[type[Component]]:
    return [
        item
        for item in vars(module).values()
        if isinstance(item, type)
        and issubclass(item, Component)
        and item.type_name
        and item.__module__ == module.__name__  # type: ignore[attr-defined]
    ]


@functools.cache
def standard_library() -> Library:
    """The built-in components and those of installed packages (entry points ``hilserver.components``: modules)."""
    modules = [
        importlib.import_module(f"hilserver.components.{info.name}")
        for info in pkgutil.iter_modules(hilserver.components.__path__)
    ]
    modules += [entry.load() for entry in entry_points(group="hilserver.components")]
    return Library(component for module in modules for component in _types_in(module))
