"""A mechanism as it is drawn: bodies, the joints that connect them, and the actuators that a circuit drives.

Every point and direction is given in the coordinates of one drawing: the mechanism in one pose, with the ground as its
frame. Every loop is thus closed in the drawing, a joint has one point and not one per body, and the coordinate of a
joint is 0 as drawn.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import hypot, sqrt
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from hilserver.components.base import Datasheet
from hilserver.errors import ConfigurationError, Problem, did_you_mean, problems_of, shown
from hilserver.parameters import without_parameters
from hilserver.toml import copied
from hilserver.units import Acceleration, Angle, Inertia, Length, Mass, Number, Speed, Velocity

GROUND = "ground"
"""The body that does not move."""
ROUNDED = 0.01
"""Relative rounding error that is allowed for moments of inertia."""

Vector = tuple[float, ...]
"""Two components in a plane, three in space."""


def _two_or_three(vector: Vector) -> Vector:
    if len(vector) not in (2, 3):
        raise ValueError(f"needs 2 components (in a plane) or 3 (in space), not {len(vector)}")
    return vector


def _unit_length(vector: Vector) -> Vector:
    length = sqrt(sum(c * c for c in _two_or_three(vector)))
    if length == 0.0:
        raise ValueError("a direction must not have the length 0")
    return tuple(c / length for c in vector)


def _one_or_more(value: object) -> object:
    return [value] if isinstance(value, str | int | float) else value


def _inertia_numbers(values: Vector) -> Vector:
    if len(values) not in (1, 3, 6):
        raise ValueError(
            f"needs 1 number (in a plane), 3 (xx, yy, zz) or 6 (xx, yy, zz, xy, xz, yz), not {len(values)}"
        )
    if min(values[:3]) <= 0.0:
        raise ValueError("moments of inertia must be > 0")
    if len(values) > 1:
        _require_possible_body(values)
    return values


def _require_possible_body(values: Vector) -> None:
    """Raise ValueError unless a body can have these moments: each principal one is > 0, and none above the others' sum.

    The moments are integrals like that of y² + z² over the mass, so that xx + yy - zz = 2·integral of z² >= 0.
    """
    xx, yy, zz, xy, xz, yz = (*values, 0.0, 0.0, 0.0)[:6]
    least, middle, largest = np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    principal = f"the principal moments of inertia are {least:.4g}, {middle:.4g} and {largest:.4g} kg*m^2"
    if least <= 0.0:
        raise ValueError(f"{principal}: all must be > 0. xy, xz, yz are elements of the tensor")
    if largest > (least + middle) * (1.0 + ROUNDED):
        raise ValueError(f"{principal}: no body has one that exceeds the sum of the other two")


Point = Annotated[tuple[Length, ...], AfterValidator(_two_or_three)]
Direction = Annotated[tuple[Number, ...], AfterValidator(_unit_length)]
Gravity = Annotated[tuple[Acceleration, ...], AfterValidator(_two_or_three)]
Moments = Annotated[tuple[Inertia, ...], BeforeValidator(_one_or_more), AfterValidator(_inertia_numbers)]
Pair = tuple[str, str]
Method = Literal["absolute", "recursive"]


class Body(Datasheet):
    """A rigid body."""

    mass: Mass = Field(gt=0, description="mass of the body, m")
    inertia: Moments = Field(
        description="moment of inertia about the centre of mass: J in a plane; [xx, yy, zz] or "
        "[xx, yy, zz, xy, xz, yz] in space, elements of the tensor along the drawing's axes",
        examples=["12 kg*m^2"],
    )
    centre: Point = Field(description="centre of mass in the drawing")
    outline: tuple[Point, ...] | None = Field(
        default=None, description="corners as drawn, for pictures only; default: lines between its joints"
    )


class Joint(Datasheet):
    """A connection of two bodies. The joint's coordinate is that of the second body relative to the first."""

    type_name: ClassVar[str] = ""
    freedom: ClassVar[int] = 0
    """Degrees of freedom that it allows in space."""

    between: Pair = Field(description=f'names of two bodies, like ["{GROUND}", "boom"]')
    point: Point = Field(description="position of the joint in the drawing")


class Revolute(Joint):
    """A pin: the bodies rotate about one axis, which in a plane is normal to it."""

    type_name: ClassVar[str] = "revolute"
    freedom: ClassVar[int] = 1

    axis: Direction | None = Field(default=None, description="in space: the axis of rotation, as drawn")
    start: Angle | None = Field(default=None, description="angle from the drawing to the start; free if not given")
    start_speed: Speed | None = Field(
        default=None, description="speed at the start; follows from the others if not given"
    )


class Prismatic(Joint):
    """A slide: one body moves along a straight line of the other, without rotation."""

    type_name: ClassVar[str] = "prismatic"
    freedom: ClassVar[int] = 1

    axis: Direction = Field(description="direction in which the second body slides, as drawn")
    start: Length | None = Field(
        default=None, description="displacement from the drawing to the start; free if not given"
    )
    start_speed: Velocity | None = Field(
        default=None, description="speed at the start; follows from the others if not given"
    )


class Universal(Joint):
    """A cross joint: the first axis is fixed in the first body, the second, normal to it, in the other. In space."""

    type_name: ClassVar[str] = "universal"
    freedom: ClassVar[int] = 2

    axes: tuple[Direction, Direction] = Field(description="first and second axis, as drawn; normal to each other")


class Spherical(Joint):
    """A ball joint: the bodies have one point in common. In space only."""

    type_name: ClassVar[str] = "spherical"
    freedom: ClassVar[int] = 3


JOINTS: Mapping[str, type[Joint]] = {kind.type_name: kind for kind in (Revolute, Prismatic, Universal, Spherical)}


class CylinderPart(Datasheet):
    """Barrel or rod of a cylinder as a body."""

    mass: Mass = Field(gt=0, description="mass of the part, m")
    inertia: Inertia = Field(gt=0, description="moment of inertia about its centre of mass, J")
    centre: Length = Field(ge=0, description="distance of its centre of mass from its pin, along the cylinder")


class Linear(Datasheet):
    """A linear actuator between two pins, which pushes two bodies apart: a cylinder, a spring.

    Its position is the distance of the pins minus ``retracted``; in a circuit it is the position of a mechanical node.
    """

    type_name: ClassVar[str] = "linear"

    between: Pair = Field(description=f'names of two bodies, like ["{GROUND}", "boom"]')
    pins: tuple[Point, Point] = Field(description="its pins in the first and in the second body, as drawn")
    retracted: Length = Field(default="0 m", ge=0, description="distance between the pins at position 0")
    barrel: CylinderPart | None = Field(default=None, description="barrel at the first pin; massless if not given")
    rod: CylinderPart | None = Field(default=None, description="rod at the second pin; massless if not given")
    start: Length | None = Field(default=None, description="position at the start; free if not given")
    start_speed: Velocity | None = Field(
        default=None, description="speed at the start; follows from the others if not given"
    )

    @model_validator(mode="after")
    def _barrel_with_rod(self) -> Linear:
        if (self.barrel is None) != (self.rod is None):
            raise ValueError("give both barrel and rod a mass, or neither")
        return self

    @property
    def drawn_length(self) -> float:
        """Distance of the pins in the drawing, m."""
        first, second = self.pins
        return sqrt(sum((b - a) ** 2 for a, b in zip(first, second, strict=True)))


class Rotary(Datasheet):
    """A rotary actuator, which turns the second body of a revolute joint: a motor, a torque on a crank.

    Its angle is the joint's, 0 as drawn; in a circuit it is the angle of a shaft.
    """

    type_name: ClassVar[str] = "rotary"

    joint: str = Field(description="name of a revolute joint")


ACTUATORS: Mapping[str, type[Linear | Rotary]] = {"linear": Linear, "rotary": Rotary}


@dataclass(frozen=True)
class Mechanism:
    """A validated mechanism; ``source`` is the table as the user gave it.

    ``bodies`` and ``joints`` include barrels and rods of cylinders that have a mass (``lift.barrel``, ``lift.rod``).
    """

    description: str
    method: Method
    gravity: Vector
    bodies: Mapping[str, Body]
    joints: Mapping[str, Joint]
    actuators: Mapping[str, Linear | Rotary]
    source: Mapping[str, Any] = field(repr=False)

    @property
    def planar(self) -> bool:
        """Whether it moves in a plane: its vectors have two components."""
        return len(self.gravity) == 2

    def started_at(self, positions: Mapping[str, float]) -> Mechanism:
        """The same mechanism with these actuators (linear ones, m) at these positions at the start, all else free."""
        joints = {
            name: joint.model_copy(update={key: None for key in ("start", "start_speed") if hasattr(joint, key)})
            for name, joint in self.joints.items()
        }
        actuators = {
            name: actuator.model_copy(update={"start": positions.get(name), "start_speed": None})
            if isinstance(actuator, Linear)
            else actuator
            for name, actuator in self.actuators.items()
        }
        return replace(self, joints=joints, actuators=actuators)

    def connections(self, actuator: str) -> Pair:
        """The two bodies that an actuator acts on: positive force pushes or turns the second away from the first."""
        found = self.actuators[actuator]
        return found.between if isinstance(found, Linear) else self.joints[found.joint].between


def embed_mechanism(table: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """A circuit's table of a mechanism with the contents of its ``file`` in their place, as ``definition``.

    ``folder``: of the circuit file. The mechanism file must be there, in a folder below it, or in the folder
    ``mechanisms`` beside it, so that a command over the network can't read other files. Raises ValueError otherwise.
    """
    if "file" not in table:
        return table
    name = table["file"]
    parts = PurePath(name).parts if isinstance(name, str) else ()
    beside = parts[1:] if parts[:2] == ("..", "mechanisms") else parts
    if not parts or PurePath(name).is_absolute() or ".." in beside or PurePath(name).suffix != ".toml":
        text = 'must be a TOML file in the folder of the circuit file, in a folder below it, or in "../mechanisms"'
        raise ValueError(f"file: {shown(name)} {text}")
    try:
        definition = tomllib.loads((folder / name).read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise ValueError(f"file: {shown(name)} can't be read: {reason}") from None
    return {**{key: value for key, value in table.items() if key != "file"}, "definition": definition}


_TABLES = ("description", "method", "gravity", "bodies", "joints", "actuators")
_STANDARD_GRAVITY: Mapping[int, Vector] = {2: (0.0, -9.81), 3: (0.0, 0.0, -9.81)}
"""m/s², down along the drawing's last axis."""


class _Head(Datasheet):
    """The keys above the tables."""

    description: str = ""
    method: Method | None = None
    gravity: Gravity | None = None


def read_mechanism(raw: object, file: str = "", prefix: str = "") -> Mechanism:
    """Validate a mechanism table, with its parameters at their own values. Raises ConfigurationError.

    ``prefix``: key of the table in ``file``, put before every key.
    """
    if not isinstance(raw, Mapping):
        raise ConfigurationError([Problem(f"{shown(raw)} is not a table with bodies and joints.", prefix, file)])
    wrong: list[Problem] = []
    raw, _ = without_parameters(raw, {}, file, prefix, wrong)
    if wrong:
        raise ConfigurationError(wrong)
    problems = [Problem("unknown key." + did_you_mean(key, _TABLES), key, file) for key in raw if key not in _TABLES]
    head = _validated(_Head, {k: v for k, v in raw.items() if k in _Head.model_fields}, "", file, problems)
    bodies = {
        name: body
        for name, table in _named(raw, "bodies", file, problems)
        if (body := _validated(Body, table, f"bodies.{name}", file, problems)) is not None
    }
    joints = dict(_typed(raw, "joints", JOINTS, "revolute", file, problems))
    actuators = dict(_typed(raw, "actuators", ACTUATORS, "linear", file, problems))
    if not raw.get("bodies"):
        problems.append(Problem("a mechanism needs at least one body.", "bodies", file))
    if not problems:
        size = len(next(iter(bodies.values())).centre)
        gravity = head.gravity if head.gravity is not None else _STANDARD_GRAVITY[size]
        method: Method = head.method or ("absolute" if len(gravity) == 2 else "recursive")
        whole = Mechanism(head.description, method, gravity, bodies, joints, actuators, copied(raw))
        problems += [Problem(text, key, file) for key, text in _misfits(whole)]
        if not problems:
            return _with_cylinders(whole)
    if prefix:
        problems = [Problem(p.message, ".".join(part for part in (prefix, p.key) if part), p.file) for p in problems]
    raise ConfigurationError(problems)


def _validated(kind: type[Datasheet], value: object, key: str, file: str, problems: list[Problem]) -> Any:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        problems.extend(problems_of(error, value, file=file, prefix=key, names=kind.model_fields))
        return None


def _named(raw: Mapping[str, Any], key: str, file: str, problems: list[Problem]) -> Iterator[tuple[str, Any]]:
    """The entries of a table of named tables."""
    table = raw.get(key, {})
    if not isinstance(table, Mapping):
        problems.append(Problem(f"{shown(table)} is not a table.", key, file))
        return
    for name, value in table.items():
        if not name or name == GROUND or any(character in name for character in '."[] \n\t'):
            text = (
                f'a name must not contain dots, brackets, quotes or spaces; "{GROUND}" is the body that does not move.'
            )
            problems.append(Problem(text, f"{key}.{name}", file))
        yield name, value


def _typed(
    raw: Mapping[str, Any],
    key: str,
    kinds: Mapping[str, type[Datasheet]],
    usual: str,
    file: str,
    problems: list[Problem],
) -> Iterator[tuple[str, Any]]:
    """The entries of a table of named tables with a type each."""
    for name, table in _named(raw, key, file, problems):
        place = f"{key}.{name}"
        if not isinstance(table, Mapping):
            problems.append(Problem(f"{shown(table)} is not a table.", place, file))
            continue
        named = table.get("type", usual)
        kind = kinds.get(named) if isinstance(named, str) else None
        if kind is None:
            text = f"{shown(named)} is not one of its types." + did_you_mean(str(named), kinds)
            problems.append(Problem(text, f"{place}.type", file))
            continue
        values = {k: v for k, v in table.items() if k != "type"}
        if (found := _validated(kind, values, place, file, problems)) is not None:
            yield name, found


def _misfits(m: Mechanism) -> Iterator[tuple[str, str]]:
    """Inconsistencies, as key and text."""
    if m.method == "absolute" and not m.planar:
        yield "method", 'absolute coordinates are for mechanisms in a plane; for one in space set method = "recursive".'
    yield from _wrong_sizes(m)
    for key, pair in [
        *((f"joints.{name}", joint.between) for name, joint in m.joints.items()),
        *((f"actuators.{name}", a.between) for name, a in m.actuators.items() if isinstance(a, Linear)),
    ]:
        for name in pair:
            if name != GROUND and name not in m.bodies:
                yield f"{key}.between", f"{shown(name)} is not a body." + did_you_mean(name, [*m.bodies, GROUND])
        if pair[0] == pair[1]:
            yield f"{key}.between", f"{shown(pair[0])} is on both sides: it needs two bodies."
    for name, actuator in m.actuators.items():
        if isinstance(actuator, Rotary):
            if not isinstance(m.joints.get(actuator.joint), Revolute):
                pins = [joint for joint, kind in m.joints.items() if isinstance(kind, Revolute)]
                text = f"{shown(actuator.joint)} is not a revolute joint." + did_you_mean(actuator.joint, pins)
                yield f"actuators.{name}.joint", text
        elif actuator.drawn_length == 0.0:
            yield f"actuators.{name}.pins", "both pins are at the same point: it has no direction."
    yield from _loose_bodies(m)


def _wrong_sizes(m: Mechanism) -> Iterator[tuple[str, str]]:
    """Vectors of a plane in space, and the other way round; joints and values that only space has."""
    size = len(m.gravity)
    space = f"has {{}} components, but this mechanism moves in {'a plane: 2' if m.planar else 'space: 3'}."
    for key, vector in _vectors(m):
        if len(vector) != size:
            yield key, space.format(len(vector))
    for name, body in m.bodies.items():
        if (len(body.inertia) == 1) is not m.planar:
            yield f"bodies.{name}.inertia", "one number in a plane, 3 or 6 in space."
    for name, joint in m.joints.items():
        if m.planar and isinstance(joint, Universal | Spherical):
            yield (
                f"joints.{name}.type",
                f"there is no {joint.type_name} joint in a plane; allowed: revolute, prismatic.",
            )
        if isinstance(joint, Revolute) and (joint.axis is None) is not m.planar:
            text = (
                "in a plane the axis is normal to it: leave it out." if m.planar else "missing: the axis of rotation."
            )
            yield f"joints.{name}.axis", text
        if isinstance(joint, Universal) and abs(sum(a * b for a, b in zip(*joint.axes, strict=False))) > 1e-9:
            yield f"joints.{name}.axes", "the two axes of a universal joint are normal to each other."
    for name, actuator in m.actuators.items():
        if isinstance(actuator, Linear) and actuator.barrel is not None and not m.planar:
            yield f"actuators.{name}.barrel", "in space, model a cylinder with mass by its bodies and joints."


def _vectors(m: Mechanism) -> Iterator[tuple[str, Vector]]:
    for name, body in m.bodies.items():
        yield f"bodies.{name}.centre", body.centre
        for number, corner in enumerate(body.outline or ()):
            yield f"bodies.{name}.outline[{number}]", corner
    for name, joint in m.joints.items():
        yield f"joints.{name}.point", joint.point
        if isinstance(joint, Prismatic):
            yield f"joints.{name}.axis", joint.axis
        if isinstance(joint, Revolute) and joint.axis is not None and not m.planar:
            yield f"joints.{name}.axis", joint.axis
        if isinstance(joint, Universal):
            yield from ((f"joints.{name}.axes[{k}]", axis) for k, axis in enumerate(joint.axes))
    for name, actuator in m.actuators.items():
        if isinstance(actuator, Linear):
            yield from ((f"actuators.{name}.pins[{k}]", pin) for k, pin in enumerate(actuator.pins))


def _loose_bodies(m: Mechanism) -> Iterator[tuple[str, str]]:
    """Bodies that no chain of joints connects to the ground."""
    reached, grown = {GROUND}, True
    while grown:
        touching = {name for joint in m.joints.values() if reached & {*joint.between} for name in joint.between}
        grown, reached = not touching <= reached, reached | touching
    for name in m.bodies:
        if name not in reached:
            yield f"bodies.{name}", f'no chain of joints connects it to "{GROUND}".'


def _with_cylinders(m: Mechanism) -> Mechanism:
    """Barrels and rods with a mass as bodies with joints of their own: two pins and a slide."""
    bodies, joints = dict(m.bodies), dict(m.joints)
    for name, actuator in m.actuators.items():
        if isinstance(actuator, Linear) and actuator.barrel is not None:
            new_bodies, new_joints = _cylinder(name, actuator)
            bodies |= new_bodies
            joints |= new_joints
    return Mechanism(m.description, m.method, m.gravity, bodies, joints, m.actuators, m.source)


def _cylinder(name: str, actuator: Linear) -> tuple[dict[str, Body], dict[str, Joint]]:
    """Barrel and rod of a cylinder, pinned to the bodies that it connects, and the slide between them."""
    (x1, y1), (x2, y2) = first, second = actuator.pins
    length = hypot(x2 - x1, y2 - y1)
    along = ((x2 - x1) / length, (y2 - y1) / length)
    barrel, rod = f"{name}.barrel", f"{name}.rod"
    base, head = actuator.between
    assert actuator.barrel is not None
    assert actuator.rod is not None
    bodies = {
        barrel: _part(actuator.barrel, first, along),
        rod: _part(actuator.rod, second, (-along[0], -along[1])),
    }
    joints: dict[str, Joint] = {
        f"{name}.base": Revolute.model_construct(between=(base, barrel), point=first),
        f"{name}.head": Revolute.model_construct(between=(head, rod), point=second),
        f"{name}.slide": Prismatic.model_construct(between=(barrel, rod), point=second, axis=along),
    }
    return bodies, joints


def _part(part: CylinderPart, pin: Vector, along: Vector) -> Body:
    """A body from SI values, without the units of a file."""
    centre = tuple(p + part.centre * u for p, u in zip(pin, along, strict=True))
    return Body.model_construct(mass=part.mass, inertia=(part.inertia,), centre=centre, outline=None)
