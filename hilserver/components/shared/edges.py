"""Shared by the datasheets of directional valves: nominal flow, leakage, opening curves, ports."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from hilserver.components.base import Component, Datasheet, Table
from hilserver.units import BAR, Flow, Number, Pressure


class NominalFlow(Datasheet):
    """A point of a valve's datasheet at full opening."""

    flow: Flow = Field(gt=0, description="flow at full opening")
    drop: Pressure = Field(gt=0, description="pressure drop at this flow")
    per: Literal["edge", "loop"] = Field(
        description="the drop is across one edge (P-A), or across both of the loop (P-A and B-T): sqrt(2) in flow"
    )

    def coefficient(self) -> float:
        """C_v of one edge at full opening, m³/(s·sqrt(Pa)): an edge takes half the loop's drop."""
        return self.flow / sqrt(self.edge_drop())

    def edge_drop(self) -> float:
        """The drop over one edge, Pa."""
        return self.drop if self.per == "edge" else 0.5 * self.drop


class Leakage(Datasheet):
    """Leakage of a valve with its spool at null."""

    flow: Flow = Field(ge=0, examples=["0.8 l/min"], description="leakage with the spool at null")
    drop: Pressure = Field(gt=0, examples=["70 bar"], description="pressure drop at this leakage")
    per: Literal["edge", "valve"] = Field(
        description="flow and drop of one edge, or of the whole valve P to T (A, B blocked)"
    )
    gone_at: Number = Field(default=0.1, gt=0, le=1, description="spool opening at which the leakage has become zero")

    def coefficient(self) -> float:
        """Leakage coefficient of one edge, m³/(s·sqrt(Pa)).

        Per valve: with A and B blocked, each of the paths P-A-T and P-B-T takes half the flow, each edge half the drop.
        """
        if self.per == "edge":
            return self.flow / sqrt(self.drop)
        return 0.5 * self.flow / sqrt(0.5 * self.drop)

    def edge_drop(self) -> float:
        """The drop over one edge, Pa."""
        return self.drop if self.per == "edge" else 0.5 * self.drop


def refuse_laminar(name: str, drop: float, p_tr: float) -> None:
    """Raise ValueError if the flow at a point of a datasheet, with its drop over one edge, is not turbulent."""
    if drop < p_tr:
        raise ValueError(
            f"{name}.drop is {drop / BAR:g} bar across one edge, below the transition_pressure of "
            f"{p_tr / BAR:g} bar: give a point above it, or a lower transition_pressure"
        )


class ValveWithEdges(Component):
    """A 4/3 spool valve with the edges P-A, P-B, A-T, B-T; subclasses define how they open and how the spool moves."""

    hydraulic = ("P", "T", "A", "B")
    inputs = ("command",)

    nominal_flow: NominalFlow = Field(
        description='datasheet flow, like { flow = "40 l/min", drop = "35 bar", per = "edge" }',
    )
    leakage: Leakage | None = Field(
        default=None,
        description='at null, like { flow = "0.6 l/min", drop = "70 bar", per = "edge" }; none if not given',
    )
    transition_pressure: Pressure = Field(default="1 bar", gt=0, description="laminar below this drop, p_tr")

    @model_validator(mode="after")
    def _turbulent_datasheet(self) -> ValveWithEdges:
        for name, point in (("nominal_flow", self.nominal_flow), ("leakage", self.leakage)):
            if point is not None:
                refuse_laminar(name, point.edge_drop(), self.transition_pressure)
        return self

    def edge_parameters(self) -> dict[str, float]:
        """Kernel parameters of the edges."""
        return {
            "C_v": self.nominal_flow.coefficient(),
            "C_leak": self.leakage.coefficient() if self.leakage else 0.0,
            "U_leak": self.leakage.gone_at if self.leakage else 1.0,
            "p_tr": self.transition_pressure,
        }


class OverlappedEdges(Component):
    """A valve whose edges open at some spool travel beyond null, or before it."""

    overlap: Number = Field(
        default=0.0,
        gt=-0.5,
        lt=0.5,
        description="spool travel from null to the opening of the edges of P, as a fraction of full stroke; "
        "negative: underlap, they are open at null",
    )
    overlap_T: Number | None = Field(
        default=None, gt=-0.5, lt=0.5, description="the same for the edges of T; default: overlap"
    )

    def overlaps(self) -> tuple[float, float]:
        """Overlap of the edges of P, of the edges of T."""
        return self.overlap, self.overlap if self.overlap_T is None else self.overlap_T


# --- opening curves --------------------------------------------------------------------------------------------------


def _rising(points: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    spool = [x for x, _ in points]
    if len(points) < 2 or any(b <= a for a, b in pairwise(spool)):
        raise ValueError(
            "an opening curve requires at least two points [spool, opening] with increasing spool position, "
            "such as [[0.05, 0], [0.5, 0.2], [1, 1]]"
        )
    return points


Curve = Annotated[
    tuple[tuple[Annotated[Number, Field(ge=-1, le=1)], Annotated[Number, Field(ge=0, le=10)]], ...],
    AfterValidator(_rising),
]
"""Opening of an edge over the spool's position: linear between its points, constant beyond its ends; 1 is nominal."""


class OpeningOfP(Datasheet):
    """Opening curve of a 2/2 valve: opening (1: nominal flow) over the spool's position."""

    PA: Curve | None = Field(default=None, description="edge P-A, like [[0.05, 0], [0.5, 0.2], [1, 1]]")

    def table(self, edge: str, otherwise: Table) -> Table:
        """The curve given for an edge, or the default."""
        points = getattr(self, edge)
        return otherwise if points is None else table_of(points)


class OpeningsOfA(OpeningOfP):
    """Opening curves of a 3/2 valve."""

    AT: Curve | None = Field(default=None, description="edge A-T")


class Openings(OpeningsOfA):
    """Opening curves of a 4/2 or 4/3 valve."""

    PB: Curve | None = Field(default=None, description="edge P-B")
    BT: Curve | None = Field(default=None, description="edge B-T")
    PT: Curve | None = Field(default=None, description="edge P-T, only with a tandem centre")


def table_of(points: tuple[tuple[float, float], ...]) -> Table:
    """Points (spool, opening) as a table."""
    x, y = zip(*points, strict=True)
    return Table(x, y)


def linear(shut: float, full: float) -> Table:
    """An edge that opens linearly between two positions of the spool.

    >>> linear(0.1, 1.0), linear(0.4, 0.0)
    (Table(x=(0.1, 1.0), y=(0.0, 1.0)), Table(x=(0.0, 0.4), y=(1.0, 0.0)))
    """
    return Table((shut, full), (0.0, 1.0)) if shut < full else Table((full, shut), (1.0, 0.0))


def mirrored(table: Table) -> Table:
    """The same edge on the other side of the spool.

    >>> mirrored(linear(0.25, 1.0))
    Table(x=(-1.0, -0.25), y=(1.0, 0.0))
    """
    return Table(tuple(-x for x in reversed(table.x)), tuple(reversed(table.y)))


def larger(one: Table, other: Table) -> Table:
    """The larger of two openings, everywhere.

    >>> larger(Table((-1.0, 1.0), (0.0, 1.0)), Table((-1.0, 1.0), (0.5, 0.5)))
    Table(x=(-1.0, 0.0, 1.0), y=(0.5, 0.5, 1.0))
    """
    x = np.union1d(one.x, other.x)
    difference = np.interp(x, one.x, one.y) - np.interp(x, other.x, other.y)
    (left,) = np.nonzero(difference[:-1] * difference[1:] < 0.0)  # they cross after these points
    share = difference[left] / (difference[left] - difference[left + 1])
    x = np.union1d(x, x[left] + share * (x[left + 1] - x[left]))
    y = np.maximum(np.interp(x, one.x, one.y), np.interp(x, other.x, other.y))
    return Table(tuple(x.tolist()), tuple(y.tolist()))
