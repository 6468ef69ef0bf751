"""The available component types and the contract of their kernels."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from types import ModuleType

import hilserver.components
from hilserver.circuit.own import OwnFile, own_module, where
from hilserver.components.base import Component, Kernel, Memory, Parameters, State, Table
from hilserver.errors import ConfigurationError, Problem, did_you_mean, shown
from hilserver.installed import installed
from hilserver.toml import read_toml

INSTALLED = "hilserver.components"
"""Group of the entry points with which installed packages name modules with components."""
FIRST_OWN_KIND = 1024
"""Number of the first kernel that is not a built-in one."""
MAX_OWN_KINDS = 1024
"""Maximum number of such kernels."""


class Role(Enum):
    """The role of a kernel's argument or result; the value is the prefix of its name."""

    PRESSURE = "p_"
    FLOW = "q_"
    CAPACITANCE = "C_"
    POSITION = "x_"
    VELOCITY = "v_"
    FORCE = "F_"
    MASS = "m_"
    ADDED_MASS = "added_m_"
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
    STEP = "h_explicit"
    PARAMETER = "parameter"
    TABLE = "table_"
    OBSERVABLE = "observable"


_HYDRAULIC = {Role.PRESSURE, Role.FLOW, Role.CAPACITANCE}
_MECHANICAL = {Role.POSITION, Role.VELOCITY, Role.FORCE, Role.MASS, Role.ADDED_MASS}
_ROTATIONAL = {Role.ANGLE, Role.SPEED, Role.TORQUE, Role.INERTIA}
_MOTION = {Role.POSITION, Role.VELOCITY, Role.ANGLE, Role.SPEED}
ARGUMENT_ROLES = {Role.PRESSURE, Role.SIGNAL, *_MOTION}
RESISTING = {Role.CAPACITANCE, Role.MASS, Role.ADDED_MASS, Role.INERTIA}
"""Sums that are divisors: they follow the sum of flow, force or torque of the same node."""
SUMMED = {Role.FLOW, Role.FORCE, Role.TORQUE, *RESISTING}
WRITTEN = {Role.PRESSURE, Role.SIGNAL, *_MOTION}
RECORDED = {Role.FLOW, Role.FORCE, Role.TORQUE, Role.OBSERVABLE}


@dataclass(frozen=True)
class Term:
    """An argument or result of a kernel: its role, and the name of the port, state or parameter."""

    role: Role
    name: str
    word: str

    @property
    def from_parameters(self) -> bool:
        return self.role is Role.PARAMETER


@dataclass(frozen=True)
class Contract:
    """A kernel of a component type with parsed arguments and results; ``kind`` is its number in the dispatch."""

    kind: int
    component: type[Component]
    kernel: Kernel
    arguments: tuple[Term, ...]
    results: tuple[Term, ...]

    @property
    def meaning(self) -> tuple[object, ...]:
        """Whatever determines the kind of a kernel."""
        return self.kernel, self.arguments, self.results, self.component.memories

    @property
    def is_built_in(self) -> bool:
        """Whether the kernel is part of the prebuilt program, which calls all others by their addresses."""
        return self.kind < FIRST_OWN_KIND


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
    """Parse the name of an argument."""
    if word in {state.name for state in component.states}:
        return Term(Role.STATE, word, word)
    if word in {memory.name for memory in component.memories}:
        return Term(Role.MEMORY, word, word)
    if word.startswith(Role.TABLE.value):
        return Term(Role.TABLE, word, word)
    for role in (Role.TIME, Role.STEP):
        if word == role.value:
            return Term(role, word, word)
    for role in ARGUMENT_ROLES:
        port = word.removeprefix(role.value)
        if port != word and port in _ports(component, role, as_result=False):
            return Term(role, port, word)
    return Term(Role.PARAMETER, word, word)


def result(component: type[Component], word: str) -> Term:
    """Parse the name of a result."""
    if word.startswith("d") and word[1:] in {state.name for state in component.states}:
        return Term(Role.DERIVATIVE, word[1:], word)
    kept = {memory.name for memory in component.memories} | {state.name for state in component.states}
    if word.removeprefix("next_") in kept:
        return Term(Role.NEXT, word.removeprefix("next_"), word)
    for role in (*SUMMED, *WRITTEN):
        port = word.removeprefix(role.value)
        if port != word and port in _ports(component, role, as_result=True):
            return Term(role, port, word)
    return Term(Role.OBSERVABLE, word, word)


class Library:
    """All component types by ``type_name`` and all kernels by kind, in a fixed order (sorted by type name).

    ``contracts``: one per kind; a kernel that several types use alike is one kind, compiled once. Kernels of the user
    are numbered from ``FIRST_OWN_KIND`` on, so that the kinds of built-in ones are the same in every library.
    ``own``: the user's files that define some of them.
    """

    def __init__(self, types: Iterable[type[Component]], own: Iterable[OwnFile] = ()) -> None:
        self.types = {component.type_name: component for component in sorted(types, key=lambda c: c.type_name)}
        self.own = tuple(own)
        self._of: dict[type[Component], list[Contract]] = {component: [] for component in self.types.values()}
        kinds, next_own = dict(built_in_kinds()), FIRST_OWN_KIND
        found: dict[int, Contract] = {}
        for component in self.types.values():
            for kernel in component.kernels:
                contract = _contract(0, component, kernel)
                kind = kinds.setdefault(contract.meaning, next_own)
                next_own += kind == next_own
                contract = replace(contract, kind=kind)
                found.setdefault(kind, contract)
                self._of[component].append(contract)
        self.contracts = [found[kind] for kind in sorted(found)]

    @property
    def built_in(self) -> list[Contract]:
        """The contracts of the kernels that are part of the prebuilt program."""
        return [contract for contract in self.contracts if contract.is_built_in]

    @property
    def own_kernels(self) -> list[Contract]:
        """The contracts of all other kernels."""
        return [contract for contract in self.contracts if not contract.is_built_in]

    def contracts_of(self, component: type[Component]) -> list[Contract]:
        """The kernels of one component type."""
        return self._of[component]

    def wrong_parameters(self, kind: type[Component], parameters: Callable[[], Parameters]) -> Iterator[str]:
        """Problems of a component's ``parameters()``: values that its kernels require and that are missing or wrong."""
        try:
            values = parameters()
        except Exception as error:  # a user's component may raise any exception, which is reported to the user
            yield f"{where(kind)}: parameters() of {kind.__name__} fails here: {type(error).__name__}: {error}."
            return
        entries: tuple[State | Memory, ...] = (*kind.states, *kind.memories)
        for entry in entries:
            for word in (getattr(entry, name, None) for name in ("initial", "lower", "upper", "scale")):
                if isinstance(word, str) and not isinstance(values.get(word), int | float):
                    meant = did_you_mean(word, values)
                    yield f"{where(kind)}: {entry.name}: {word} is not a number in parameters().{meant}"
        for contract in self.contracts_of(kind):
            for term in contract.arguments:
                if term.role not in (Role.PARAMETER, Role.TABLE):
                    continue
                name = f"{where(kind)}: kernel {contract.kernel.function.__name__}: {term.word}"
                value, wanted = values.get(term.word), Table if term.role is Role.TABLE else (int, float)
                if value is None:
                    meant = did_you_mean(term.word, values)
                    yield f"{name} is neither a port, a state or a memory, nor in parameters().{meant}"
                elif not isinstance(value, wanted) or value != value:
                    yield f"{name} is {shown(value)} in parameters(): no {'Table' if wanted is Table else 'number'}."


def _contract(kind: int, component: type[Component], kernel: Kernel) -> Contract:
    return Contract(
        kind,
        component,
        kernel,
        tuple(argument(component, word) for word in kernel.arguments),
        tuple(result(component, word) for word in kernel.results),
    )


def types_in(module: ModuleType) -> list[type[Component]]:
    """The component types that a module defines (not those it imports)."""
    return [
        item
        for item in vars(module).values()
        if isinstance(item, type)
        and issubclass(item, Component)
        and item.type_name
        and item.__module__ == module.__name__
    ]


@functools.cache
def built_in_types() -> tuple[type[Component], ...]:
    """The built-in component types, sorted by type name."""
    modules = [
        importlib.import_module(f"{hilserver.components.__name__}.{info.name}")
        for info in pkgutil.iter_modules(hilserver.components.__path__)
    ]
    return tuple(sorted({kind for module in modules for kind in types_in(module)}, key=lambda kind: kind.type_name))


@functools.cache
def built_in_kinds() -> dict[tuple[object, ...], int]:
    """The kinds of the kernels in the prebuilt program: the same in every library, even in one with only a few
    types."""
    kinds: dict[tuple[object, ...], int] = {}
    for component in built_in_types():
        for kernel in component.kernels:
            kinds.setdefault(_contract(0, component, kernel).meaning, len(kinds))
    return kinds


@functools.cache
def standard_library() -> Library:
    """The built-in components and those of installed packages (entry points ``hilserver.components``: modules).

    Raises ConfigurationError naming the entry point that can't be used.
    """
    types = {component.type_name: component for component in built_in_types()}
    problems: list[Problem] = []
    for entry in installed(INSTALLED):
        name = f"installed components {entry.name} ({entry.value})"
        try:
            module = entry.load()
        except Exception as error:  # any exception of the package is reported to its user
            problems.append(Problem(f"can't be imported: {type(error).__name__}: {error}", file=name))
            continue
        problems += _add(types, module, name)
    if problems:
        raise ConfigurationError(problems)
    return Library(types.values())


def library_of(files: Iterable[OwnFile]) -> Library:
    """The standard library and the components of these files. Raises ConfigurationError with all problems."""
    own, standard = tuple(files), standard_library()
    if not own:
        return standard
    types = dict(standard.types)
    problems: list[Problem] = []
    for file in own:
        try:
            problems += _add(types, own_module(file), file.name)
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(problems)
    return Library(types.values(), own)


def circuit_library(file: Path) -> Library:
    """The library of a circuit file: the standard one and the files that it names. Raises ConfigurationError."""
    problems: list[Problem] = []
    own = OwnFile.named(read_toml(file).get("library", []), file.parent, str(file), problems)
    if problems:
        raise ConfigurationError(problems)
    return library_of(own)


def _add(types: dict[str, type[Component]], module: ModuleType, name: str) -> Iterator[Problem]:
    """Add a module's components to the types; yields the problems found."""
    if not (found := types_in(module)):
        text = 'has no component: a class derived from Component with a type_name, like type_name = "my_valve".'
        yield Problem(text, file=name)
    for component in found:
        texts = list(violations(component))
        if (other := types.setdefault(component.type_name, component)) is not component:
            texts.append(f'type_name "{other.type_name}" is taken by {where(other)}.')
        yield from (Problem(text, component.__name__, name) for text in texts)


def violations(component: type[Component]) -> Iterator[str]:
    """Violations of the contract of names that can be found in the class of a component type and its kernels."""
    if not component.kernels:
        yield f"has no kernel: put @kernel({component.__name__}) above the function with its equations."
    contracts = [_contract(0, component, kernel) for kernel in component.kernels]
    for contract in contracts:
        for text in _wrong_results(contract):
            yield f"kernel {contract.kernel.function.__name__}: {text}"
    given = {(term.role, term.name) for contract in contracts for term in contract.results}
    for state in component.states:
        if (Role.DERIVATIVE, state.name) not in given:
            yield f'state "{state.name}" has no derivative: return d{state.name} from a kernel.'
    for port in component.outputs:
        if (Role.SIGNAL, port) not in given:
            yield f'output "{port}" is not written: return u_{port} from a kernel.'
    used = {term.name for contract in contracts for term in (*contract.arguments, *contract.results)}
    for port in (*component.hydraulic, *component.mechanical, *component.rotational, *component.inputs):
        if port not in used:
            yield f'port "{port}" is used by no kernel.'


def _wrong_results(contract: Contract) -> Iterator[str]:
    """Results with a misleading name, or without a meaning in this kind of kernel."""
    kinds = {
        Role.FLOW: "hydraulic port",
        Role.CAPACITANCE: "hydraulic port",
        Role.SIGNAL: "output",
        Role.NEXT: "memory",
    }
    for term in contract.results:
        if term.role is Role.OBSERVABLE:
            role = next((role for role in kinds if term.word.startswith(role.value)), None)
            if role is not None:
                yield f'returns {term.word}, but there is no {kinds[role]} "{term.word.removeprefix(role.value)}".'
        elif (term.role is Role.NEXT) is not contract.kernel.sampled:
            allowed = "next_<memory>" if contract.kernel.sampled else "no next_<memory>: that is for @sampled"
            yield f"returns {term.word}; this kind of kernel returns {allowed}."
    if len(set(contract.kernel.results)) < len(contract.kernel.results):
        yield "returns a name twice."
