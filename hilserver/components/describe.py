"""A component type in words: what it is, and how it is connected; for the terminal and the reference pages."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hilserver.components.base import Component
from hilserver.components.synonyms import SYNONYMS


class ComponentPort(NamedTuple):
    """A port of a component type."""

    port: str
    kind: str
    written: str
    """How a circuit file connects it, as TOML."""
    otherwise: str = ""
    """What else may be written, or what applies if it is not given."""


def first_sentence(kind: type[Component]) -> str:
    """What a component is; names in it stand in double backticks, as in its docstring."""
    paragraph = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
    return re.split(r"(?<=\.) (?=[A-Z])", paragraph)[0]


def in_plain_words(kind: type[Component]) -> str:
    """What a component is, without the marks of a docstring."""
    return first_sentence(kind).replace("``", "")


def matches(name: str, kind: type[Component], words: Iterable[str]) -> bool:
    """Whether all words occur in the name of a type, in one of its other names, or in its first sentence."""
    text = " ".join([name.replace("_", " "), name, *SYNONYMS.get(name, ()), in_plain_words(kind)]).casefold()
    return all(word.casefold() in text for word in words)


def connections(kind: type[Component]) -> Iterator[ComponentPort]:
    """Ports and signals of a component type."""
    for what, ports in (("hydraulic", kind.hydraulic), ("mechanical", kind.mechanical), ("shaft", kind.rotational)):
        for port in ports:
            yield ComponentPort(port, what, f'ports = {{ {port} = "<node>" }}')
    for port in kind.inputs:
        default = f"; {kind.input_defaults[port]:g} if not given" if port in kind.input_defaults else ""
        yield ComponentPort(port, "signal in", f'{port} = "<signal>"', f", or a number{default}")
    for port in kind.outputs:
        yield ComponentPort(port, "signal out", f'{port} = "<signal>"')
