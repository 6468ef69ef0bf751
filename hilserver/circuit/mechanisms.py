"""Mechanisms in a circuit: their files, and the nodes that their actuators move."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hilserver.errors import ConfigurationError, Problem, did_you_mean, shown
from hilserver.mechanics.model import Linear, Mechanism, read_mechanism
from hilserver.mechanics.tables import MechanismTables, tables


@dataclass(frozen=True)
class PlacedMechanism:
    """A mechanism in a circuit, and the node of each of its actuators."""

    name: str
    mechanism: Mechanism
    nodes: Mapping[str, str]
    _known: dict[tuple[str, float], Mapping[str, float]] = field(default_factory=dict, repr=False, compare=False)

    def kind_of(self, actuator: str) -> str:
        """The kind of node that an actuator moves: mechanical, or rotational for a shaft."""
        return "mechanical" if isinstance(self.mechanism.actuators[actuator], Linear) else "rotational"

    def nodes_of(self, kind: str) -> list[str]:
        """The nodes of this kind that the mechanism moves."""
        return [node for actuator, node in self.nodes.items() if self.kind_of(actuator) == kind]

    def values_at(self, found: MechanismTables) -> dict[str, float]:
        """The values of a circuit in which this mechanism starts as in these tables: its states, and the strokes."""
        strokes = {
            f"{node}.{'x' if self.kind_of(actuator) == 'mechanical' else 'phi'}": x
            for (actuator, node), (x, _) in zip(self.nodes.items(), found.motions, strict=True)
        }
        return strokes | {f"{self.name}.{name}": x for name, _, x in found.states}

    def values_with(self, node: str, x: float) -> Mapping[str, float]:
        """The values of a circuit in which the linear actuator at this node stands at x, m; empty if it can't.

        The other actuators stand where the mechanism's file starts them, or, where they hinder it, anywhere.
        """
        if (node, x) not in self._known:
            actuator = next(name for name, own in self.nodes.items() if own == node)
            linear = {name: a.start for name, a in self.mechanism.actuators.items() if isinstance(a, Linear)}
            others = {name: start for name, start in linear.items() if start is not None}
            self._known[node, x] = {}
            for given in ({**others, actuator: x}, {actuator: x}) if actuator in linear else ():
                with contextlib.suppress(ConfigurationError):
                    self._known[node, x] = self.values_at(tables(self.mechanism.started_at(given)))
                    break
        return self._known[node, x]


def read_mechanisms(tables: list[tuple[str, Any]], file: str, problems: list[Problem]) -> Iterator[PlacedMechanism]:
    """The valid mechanisms of a circuit that holds the contents of their files."""
    keys = ("file", "definition", "parameters", "nodes")
    for name, given in tables:
        key = f"mechanisms.{name}"
        if not isinstance(given, Mapping):
            problems.append(Problem(f"{shown(given)} is not a table.", key, file))
            continue
        check_name(name, key, file, problems)
        wrong = [Problem("unknown key." + did_you_mean(k, keys), f"{key}.{k}", file) for k in given if k not in keys]
        if "file" in given or "definition" not in given:
            wrong.append(Problem('give file, such as "../mechanisms/boom.toml", or definition.', key, file))
        problems += wrong
        if wrong:
            continue
        try:
            mechanism = read_mechanism(given["definition"], file, f"{key}.definition")
        except ConfigurationError as error:
            problems += error.problems
        else:
            yield PlacedMechanism(
                name, mechanism, _nodes_of(given.get("nodes", {}), mechanism, f"{key}.nodes", file, problems)
            )


def _nodes_of(raw: object, mechanism: Mechanism, key: str, file: str, problems: list[Problem]) -> dict[str, str]:
    """The node of each actuator: the one given for it, otherwise one with the actuator's name."""
    if not isinstance(raw, Mapping):
        problems.append(Problem(f'{shown(raw)} is not a table such as {{ lift = "rod" }}.', key, file))
        return {}
    for actuator, node in raw.items():
        if actuator not in mechanism.actuators:
            text = "the mechanism has no such actuator." + did_you_mean(actuator, mechanism.actuators)
            problems.append(Problem(text, f"{key}.{actuator}", file))
        elif not isinstance(node, str) or not node:
            problems.append(Problem(f"{shown(node)} is not the name of a node.", f"{key}.{actuator}", file))
    nodes = {name: raw.get(name, name) for name in mechanism.actuators}
    return {name: node for name, node in nodes.items() if isinstance(node, str)}


def check_name(name: str, key: str, file: str, problems: list[Problem]) -> None:
    """Add a problem if the name of a component or mechanism can't be part of a value's name."""
    if not all(name.split(".")) or any(character in name for character in '"[] \n\t'):
        kind = "mechanism" if key.startswith("mechanisms") else "component"
        text = (
            f"a {kind}'s name must not contain brackets, quotes or spaces, and a dot only after the name of a "
            f"sub-circuit."
        )
        problems.append(Problem(text, key, file))


def wrong_nodes(
    mechanisms: Iterable[PlacedMechanism], used: dict[str, str], starts: Container[str], file: str
) -> Iterator[Problem]:
    """Nodes of mechanisms that are of another kind elsewhere (``used``: kinds so far, extended here) or moved twice."""
    owners: dict[str, str] = {}
    for m in mechanisms:
        for actuator, node in m.nodes.items():
            key, kind = f"mechanisms.{m.name}.nodes.{actuator}", m.kind_of(actuator)
            if used.setdefault(node, kind) != kind:
                yield Problem(f'"{node}" is a {used[node]} node elsewhere and a {kind} node here.', key, file)
            if owners.setdefault(node, key) != key:
                yield Problem(f'"{node}" is also moved by {owners[node]}.', key, file)
            if node in starts:
                text = f"mechanisms.{m.name} moves this node: its actuator {actuator} determines the initial position."
                yield Problem(text, f"nodes.{node}", file)
