"""What a user does to a circuit: each edit says which keys of the file change, or why it can't be made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hilserver.circuit.drawn import DRAWING, LAST
from hilserver.circuit.subcircuits import is_subcircuit
from hilserver.editor.changes import Change, Drop, Put, Rename
from hilserver.editor.parts import Parts, PortEnd, Table, below, is_rig_port, tables
from hilserver.errors import HilserverError, shown

Place = tuple[int, int]
"""Column and row of a part in the drawing."""


class Edit(Protocol):
    """An edit of a circuit."""

    def label(self) -> str:
        """What it does, in a few words."""

    def changes(self, table: Table, parts: Parts) -> Iterable[Change]:
        """The changes of a circuit's table. Raises HilserverError with the reason why it can't be made."""


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """A name that is not taken.

    >>> free_name("pump", ["pump", "pump_2"])
    'pump_3'
    """
    used, number = set(taken), 2
    name = wanted
    while name in used:
        name, number = f"{wanted}_{number}", number + 1
    return name


_NOT_IN_NAMES = '."[]{}= \t\n\r'


def check_name(name: str, taken: Iterable[str], what: str) -> None:
    """Raises HilserverError if a name is taken, or is none."""
    if not name or any(letter in name for letter in _NOT_IN_NAMES):
        raise HilserverError(
            f"{shown(name)} is not a name for a {what}: it must not contain dots, brackets, quotes or spaces."
        )
    if name in taken:
        raise HilserverError(f'there is already a {what} called "{name}".')


def _clamped(place: Place) -> list[int]:
    return [min(max(int(number), 0), LAST) for number in place]


def _component(table: Table, name: str) -> Table:
    part = tables(table, "components").get(name)
    if part is None:
        raise HilserverError(f'there is no component "{name}".')
    return part


def _drop_place(table: Table, name: str) -> Iterator[Change]:
    """The table of places goes with its last one."""
    places = below(table, DRAWING)
    if name in places:
        yield Drop((DRAWING, name) if len(places) > 1 else (DRAWING,))


def _drop_start(table: Table, node: str) -> Iterator[Change]:
    starts = below(table, "nodes")
    if node in starts:
        yield Drop(("nodes", node) if len(starts) > 1 else ("nodes",))


@dataclass(frozen=True)
class AddComponent:
    """A new component at a place, with the values that its type can't be without as far as they are known.

    ``name``: that of its type, with a number where this is taken. A tank is at once connected to a node of its name.
    """

    kind: str
    place: Place | None = None
    name: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)

    def label(self) -> str:
        return f"add {self.kind}"

    def called(self, table: Table) -> str:
        """The name that it gets."""
        if self.name:
            return self.name
        file = str(self.values.get("file", self.kind)).rpartition("/")[2].removesuffix(".toml")
        return free_name(
            "".join("_" if letter in _NOT_IN_NAMES else letter for letter in file), tables(table, "components")
        )

    def changes(self, table: Table, parts: Parts) -> Iterator[Change]:
        if self.kind != "subcircuit" and self.kind not in parts.library.types:
            raise HilserverError(f'there is no component type "{self.kind}".')
        name = self.called(table)
        check_name(name, tables(table, "components"), "component")
        part: dict[str, Any] = {"type": self.kind}
        if self.kind == "tank":
            part["ports"] = {"T": free_name(name, parts.nodes(table))}
        elif any(kind not in ("signal in", "signal out") for kind in parts.ports(part | dict(self.values)).values()):
            part["ports"] = {}
        yield Put(("components", name), part | dict(self.values))
        if self.place is not None:
            yield Put((DRAWING, name), _clamped(self.place))


@dataclass(frozen=True)
class RemoveComponent:
    """Remove a component; initial values of nodes that only it had go with it."""

    name: str

    def label(self) -> str:
        return f"remove {self.name}"

    def changes(self, table: Table, parts: Parts) -> Iterator[Change]:
        _component(table, self.name)
        yield Drop(("components", self.name))
        own = {node for end, node in parts.ends(table) if end.component == self.name and node}
        gone = [node for node in own if all(end.component == self.name for end in parts.at(table, node))]
        places, starts = dict(below(table, DRAWING)), dict(below(table, "nodes"))
        for name in sorted({self.name, *filter(is_rig_port, gone)} & places.keys()):
            yield from _drop_place({DRAWING: places}, name)
            del places[name]
        moved = parts.moved(table).values()
        for node in sorted(starts.keys() & set(gone)):
            if node not in moved:
                yield from _drop_start({"nodes": starts}, node)
                del starts[node]


@dataclass(frozen=True)
class RemoveMechanism:
    """Remove a mechanism; the nodes that it moves stay."""

    name: str

    def label(self) -> str:
        return f"remove {self.name}"

    def changes(self, table: Table, parts: Parts) -> Iterator[Change]:
        every = tables(table, "mechanisms")
        if self.name not in every:
            raise HilserverError(f'there is no mechanism "{self.name}".')
        yield Drop(("mechanisms", self.name) if len(every) > 1 else ("mechanisms",))


@dataclass(frozen=True)
class RenameComponent:
    """Give a component another name; what refers to it in the file follows."""

    name: str
    new: str

    def label(self) -> str:
        return f"rename {self.name} to {self.new}"

    def changes(self, table: Table, parts: Parts) -> Iterator[Change]:
        part = _component(table, self.name)
        check_name(self.new, tables(table, "components"), "component")
        for node in sorted(_all_nodes(table, parts)) if is_subcircuit(part) else ():
            if node.startswith(f"{self.name}."):  # one of its own nodes, to which others connect
                inside = f"{self.new}{node.removeprefix(self.name)}"
                yield from _references(table, parts, node, inside)
                yield from _renamed(table, "nodes", node, inside)
        yield Rename(("components", self.name), self.new)
        if self.name in below(table, DRAWING):
            yield Rename((DRAWING, self.name), self.new)


@dataclass(frozen=True)
class SetValue:
    """Give a value: of a component, of a node's start, or any other of the file. ``value`` None: leave it out.

    ``stays``: the keys at the beginning of the path whose table stays when nothing is left in it.
    """

    path: tuple[str, ...]
    value: Any = None
    stays: int = 0

    def label(self) -> str:
        return f"{'set' if self.value is not None else 'unset'} {'.'.join(self.path[1:] or self.path)}"

    def changes(self, table: Table, parts: Parts | None = None) -> Iterator[Change]:
        if self.path[0] == "components" and len(self.path) > 2:
            _component(table, self.path[1])
        if self.value is not None:
            yield Put(self.path, self.value)
            return
        path, found = self.path, _at(table, self.path)
        stays = 2 if path[0] == "components" else self.stays
        while found is not None and len(path) > stays + 1:
            parent = _at(table, path[:-1])
            if not isinstance(parent, Mapping) or len(parent) > 1:
                break
            path = path[:-1]
        if found is not None:
            yield Drop(path)


def _at(table: Table, path: tuple[str, ...]) -> Any:
    found: Any = table
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


@dataclass(frozen=True)
class Move:
    """Put parts at places in the drawing."""

    places: Mapping[str, Place]

    def label(self) -> str:
        return f"move {', '.join(self.places)}" if len(self.places) < 3 else f"move {len(self.places)} parts"

    def changes(self, table: Table, parts: Parts) -> Iterator[Change]:
        for name, place in self.places.items():
            if not is_rig_port(name):
                _component(table, name)
            elif not parts.at(table, name):
                raise HilserverError(f'no component connects to "{name}".')
            yield Put((DRAWING, name), _clamped(place))


@dataclass(frozen=True)
class Connect:
    """Connect a port to another port, or to a node (a new one, too). Both nodes become one where both have one."""

    end: PortEnd
    to: PortEnd | str

    def label(self) -> str:
        return f"connect {self.end} to {self.to}"

    def changes(self, table: Table, parts: Parts) -> Iterator[Change]:
        here = parts.node(table, self.end)
        if isinstance(self.to, PortEnd):
            there = parts.node(table, self.to)
            self._check_kinds(parts.kind(table, self.end), parts.kind(table, self.to), str(self.to))
            if self.to == self.end:
                raise HilserverError(f"{self.end} can't be connected to itself.")
        else:
            there = self.to
            check_name(there.removeprefix("rig."), (), "node")
            kinds = [parts.kind(table, end) for end in parts.at(table, there)]
            self._check_kinds(parts.kind(table, self.end), next(filter(None, kinds), ""), f'"{there}"')
        if not here and not there:
            name = free_name(_name_of_node(table, parts, self.end, self.to), _all_nodes(table, parts))
            yield from _wired(table, parts, [self.end, self.to], name)  # type: ignore[list-item]  # else it had a name
        elif not here:
            yield from _wired(table, parts, [self.end], there)
        elif not there:
            yield from _wired(table, parts, [self.to], here)  # type: ignore[list-item]  # as above
        elif here != there:
            yield from self._joined(table, parts, here, there)

    def _joined(self, table: Table, parts: Parts, here: str, there: str) -> Iterator[Change]:
        if not isinstance(self.to, PortEnd):  # named: this port goes to another node
            yield from Disconnect(self.end).changes(table, parts, again=True)
            yield Put(parts.path(table, self.end), there)
            return
        if is_rig_port(here) and is_rig_port(there):
            raise HilserverError(f'"{here}" and "{there}" are two ports of the machine: they can\'t be one node.')
        keep, gone = (here, there) if is_rig_port(here) else (there, here)
        yield from _references(table, parts, gone, keep)
        if keep in below(table, "nodes") or is_rig_port(keep) or keep in parts.moved(table).values():
            yield from _drop_start(table, gone)
        else:
            yield from _renamed(table, "nodes", gone, keep)

    def _check_kinds(self, one: str, other: str, name: str) -> None:
        if one and other and one != other:
            raise HilserverError(f"{self.end} is a {one} port, {name} a {other} one: they can't be connected.")


def _wired(table: Table, parts: Parts, ends: Sequence[PortEnd], node: str) -> Iterator[Change]:
    """Connect free ports; those of a component stay in the order in which its type has them."""
    for name in dict.fromkeys(end.component for end in ends):
        own, part = [end for end in ends if end.component == name], tables(table, "components")[name]
        new = {end.port: node for end in own if parts.path(table, end)[2:] == ("ports", end.port)}
        if new:
            known = below(part, "ports")
            every = {port: new.get(port, known.get(port)) for port in (*parts.ports(part), *known)}
            yield Put(("components", name, "ports"), {port: each for port, each in every.items() if each is not None})
        yield from (Put(parts.path(table, end), node) for end in own if end.port not in new)


def _all_nodes(table: Table, parts: Parts) -> set[str]:
    """The nodes at ports, those that mechanisms move, and those with initial values."""
    return {*parts.nodes(table), *parts.moved(table).values(), *below(table, "nodes")}


def _name_of_node(table: Table, parts: Parts, end: PortEnd, other: PortEnd | str) -> str:
    """Where a new node begins: at the writer of a signal, or at the first of both ports."""
    ends = [end, other] if isinstance(other, PortEnd) else [end]
    of = {each: parts.ports(tables(table, "components")[each.component])[each.port] for each in ends}
    first = next((each for each in ends if of[each] == "signal out"), end)
    return f"{first.component}_{first.port}".replace(".", "_")


def _references(table: Table, parts: Parts, old: str, new: str) -> Iterator[Change]:
    """Everything that names a node gets another name, its initial values apart."""
    for end in parts.at(table, old):
        yield Put(parts.path(table, end), new)
    for (name, actuator), node in parts.moved(table).items():
        if node == old:
            yield Put(("mechanisms", name, "nodes", actuator), new)
    ports = table.get("ports")
    if isinstance(ports, list) and old in ports:
        yield Put(("ports",), list(dict.fromkeys(new if name == old else name for name in ports)))


def _renamed(table: Table, key: str, old: str, new: str) -> Iterator[Change]:
    """What the table at a key says about a node, it says about it under its new name."""
    if old in below(table, key):
        yield Rename((key, old), new)


@dataclass(frozen=True)
class Disconnect:
    """Take a port off its node; initial values of a node without ports go with it."""

    end: PortEnd

    def label(self) -> str:
        return f"disconnect {self.end}"

    def changes(self, table: Table, parts: Parts, again: bool = False) -> Iterator[Change]:
        node = parts.node(table, self.end)
        if not node:
            raise HilserverError(f"{self.end} is not connected.")
        if not again:
            yield Drop(parts.path(table, self.end))
        if parts.at(table, node) == [self.end] and node not in parts.moved(table).values():
            yield from _drop_start(table, node)
            yield from _drop_place(table, node)


@dataclass(frozen=True)
class RenameNode:
    """Give a node or signal another name; everything that is connected to it follows."""

    name: str
    new: str

    def label(self) -> str:
        return f"rename node {self.name} to {self.new}"

    def changes(self, table: Table, parts: Parts) -> Iterator[Change]:
        if self.name not in parts.nodes(table):
            raise HilserverError(f'there is no node "{self.name}".')
        check_name(self.new.removeprefix("rig."), (), "node")
        if self.new in _all_nodes(table, parts):
            raise HilserverError(f'there is already a node "{self.new}". Connect a port of one to the other instead.')
        yield from _references(table, parts, self.name, self.new)
        for key in ("nodes", DRAWING) if is_rig_port(self.new) else ("nodes",):
            yield from _renamed(table, key, self.name, self.new)
        if is_rig_port(self.name) and not is_rig_port(self.new):
            yield from _drop_place(table, self.name)


@dataclass(frozen=True)
class RemoveNode:
    """Remove a line: all ports at it are free again."""

    name: str

    def label(self) -> str:
        return f"remove node {self.name}"

    def changes(self, table: Table, parts: Parts) -> Iterator[Change]:
        ends = parts.at(table, self.name)
        if not ends:
            raise HilserverError(f'there is no node "{self.name}".')
        for end in ends:
            yield Drop(parts.path(table, end))
        if self.name not in parts.moved(table).values():
            yield from _drop_start(table, self.name)
        yield from _drop_place(table, self.name)
