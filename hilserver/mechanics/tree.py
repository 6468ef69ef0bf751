"""A mechanism as a tree of links, with the constraints that close its loops at cut joints."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hilserver.mechanics.chain import (
    BALL_X,
    BALL_Y,
    BALL_Z,
    CHAIN_HEAD,
    LINK_ENTRIES,
    LINK_PLACE,
    POINT,
    PRISMATIC,
    Chain,
    chain_alone,
)
from hilserver.mechanics.geometry import direction_name
from hilserver.mechanics.model import Linear, Mechanism
from hilserver.numerics.arrays import Floats, Indices

BALLS = (BALL_X, BALL_Y, BALL_Z)


@dataclass(frozen=True)
class Link:
    """A body with one degree of freedom relative to its parent, or a massless part of a joint with more of them."""

    joint: str
    body: str | None
    parent: int
    kind: int
    axis: Floats
    point: Floats


@dataclass(frozen=True)
class Row:
    """One scalar constraint of a cut joint."""

    joint: str
    kind: int
    point: Floats
    first: Floats
    second: Floats

    @property
    def name(self) -> str:
        """The motion that it prevents, in words."""
        if self.kind == POINT:
            return f"{self.joint}: shift along {direction_name(self.first)}"
        return f"{self.joint}: turn about {direction_name(np.cross(self.second, self.first))}"


@dataclass(frozen=True)
class Tree:
    """A mechanism as a tree of links with cut joints; ``entries`` and ``numbers`` are the same as tables.

    ``rows`` are the constraints that close the loops; ``redundant`` ones depend on them and are omitted.
    """

    mechanism: Mechanism
    links: tuple[Link, ...]
    cut: tuple[str, ...]
    rows: tuple[Row, ...]
    redundant: tuple[Row, ...]
    entries: Indices = field(repr=False)
    numbers: Floats = field(repr=False)

    @property
    def n_coordinates(self) -> int:
        """Length of q; a spherical joint has the four components of a quaternion."""
        return sum(4 if link.kind == BALL_X else link.kind not in BALLS for link in self.links)

    @property
    def n_speeds(self) -> int:
        """Length of u."""
        return len(self.links)

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the mechanism."""
        return self.n_speeds - len(self.rows)

    def link_of(self, body: str) -> int:
        """Index of the link that moves with a body; 0 is the ground."""
        return next((i for i, link in enumerate(self.links, 1) if link.body == body), 0)

    def coordinate_names(self) -> list[str]:
        """The joint of each entry of q, numbered where a joint has several entries."""
        return [name.removesuffix(".angle").removesuffix(".position") for name, _ in self.state_names()][
            : self.n_coordinates
        ]

    def state_names(self) -> list[tuple[str, str]]:
        """Name and unit of each entry of y: ``pin.angle``, ``slide.position``, ``pin.speed``, …

        Those of a universal joint are numbered (``cross.angle_1``); a spherical joint has a quaternion ``ball.w`` …
        ``ball.z`` and angular speeds ``ball.speed_x`` … about the axes of its outer body.
        """
        places: list[tuple[str, str]] = []
        speeds: list[tuple[str, str]] = []
        for number, link in enumerate(self.links):
            several = [k for k, other in enumerate(self.links) if other.joint == link.joint]
            count = f"_{several.index(number) + 1}" if len(several) > 1 else ""
            if link.kind == BALL_X:
                places += [(f"{link.joint}.{part}", "") for part in ("w", "x", "y", "z")]
            if link.kind in BALLS:
                speeds.append((f"{link.joint}.speed_{'xyz'[BALLS.index(link.kind)]}", "rad/s"))
            elif link.kind == PRISMATIC:
                places.append((f"{link.joint}.position{count}", "m"))
                speeds.append((f"{link.joint}.speed{count}", "m/s"))
            else:
                places.append((f"{link.joint}.angle{count}", "rad"))
                speeds.append((f"{link.joint}.speed{count}", "rad/s"))
        return places + speeds

    def row_bodies(self) -> list[tuple[str, str]]:
        """The two bodies of each row of the closure, then of each linear actuator."""
        linears = [a for a in self.mechanism.actuators.values() if isinstance(a, Linear)]
        return [*(self.mechanism.joints[row.joint].between for row in self.rows), *(a.between for a in linears)]

    def drawn(self) -> Floats:
        """The state y = (q, u) as drawn, at rest."""
        y = np.zeros(self.n_coordinates + self.n_speeds)
        for i, link in enumerate(self.links, 1):
            if link.kind == BALL_X:
                y[self.place(i)] = 1.0
        return y

    def place(self, i: int) -> int:
        """Index in q of link i's coordinate, or of the first component of its quaternion."""
        return int(self.entries[CHAIN_HEAD + LINK_ENTRIES * i + LINK_PLACE])

    def split(self) -> int | None:
        """First link of the second of two similar groups of branches from the ground; None if there is only one."""
        roots = [i for i, link in enumerate(self.links, 1) if link.parent == 0][1:]
        return min(roots, key=lambda i: abs(2 * i - len(self.links) - 2), default=None)

    def chain(self) -> Chain:
        """The tables as compiled functions take them, with new scratch space."""
        return chain_alone(self.entries, self.numbers)
