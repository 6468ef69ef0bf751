"""Mechanisms as pictures, animations and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import cos, sin
from pathlib import Path

import numpy as np
from matplotlib.animation import PillowWriter
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from hilserver.circuit.mechanisms import PlacedMechanism
from hilserver.errors import HilserverError
from hilserver.mechanics.assembly import mobility
from hilserver.mechanics.assembly import start as planar_start
from hilserver.mechanics.cutting import tree_of
from hilserver.mechanics.geometry import in_space
from hilserver.mechanics.initial import start_of
from hilserver.mechanics.model import GROUND, Linear, Mechanism, Prismatic, Vector
from hilserver.mechanics.position import poses as chain_poses
from hilserver.numerics.arrays import Floats
from hilserver.report.plots import save

FRAMES_PER_SECOND = 20.0
"""Frame rate of an animation, which runs in real time."""
MAX_FRAMES = 400
OBLIQUE = 0.35
"""Scale of depth in an oblique drawing, to the right and up."""
MARGIN = 0.08
"""Margin around a drawing, as a fraction of its width."""

Poses = Mapping[str, tuple[Floats, Floats]]
"""Of each body: rotation from its drawn orientation, and position of the drawing's origin as moved with the body."""


def drawn_poses(m: Mechanism) -> Poses:
    """The bodies as they are in the file's drawing."""
    return {name: (np.eye(3), np.zeros(3)) for name in m.bodies}


def start_poses(m: Mechanism, file: str = "") -> Poses:
    """The bodies at the start. Raises ConfigurationError if it can't be reached."""
    if m.method == "absolute":
        states = planar_start(m, file).reshape(-1, 6)
        return {name: planar_pose(m, name, *state[:3]) for name, state in zip(m.bodies, states.tolist(), strict=True)}
    tree = tree_of(m)
    return chain_poses(tree, start_of(tree, file))


def planar_pose(m: Mechanism, body: str, x: float, y: float, angle: float) -> tuple[Floats, Floats]:
    """The pose of a body whose centre of mass is at (x, y)."""
    R = np.array([[cos(angle), -sin(angle), 0.0], [sin(angle), cos(angle), 0.0], [0.0, 0.0, 1.0]])
    return R, np.array([x, y, 0.0]) - R @ in_space(m.bodies[body].centre)


def drawing(m: Mechanism, poses: Poses, title: str) -> Figure:
    """A mechanism: outlines or bars, pins, slides, cylinders, the ground, centres of mass, names.

    A mechanism in space is drawn in oblique projection, with y to the back.
    """
    figure = Figure(figsize=(8, 6), layout="constrained")
    axis = figure.subplots()
    _prepare(axis, m, _limits(m, [poses]), title)
    _draw(axis, m, poses, named=True)
    return figure


def draw(m: Mechanism, path: Path, name: str, poses: Poses | None = None) -> Path:
    """Write the drawing as a PNG file; default: at its start. Raises HilserverError if it can't be written."""
    title = f"{name}: {m.description}" if m.description else name
    return save(drawing(m, start_poses(m) if poses is None else poses, title), path)


def animate(m: Mechanism, time: Floats, motion: Callable[[int], Poses], path: Path, name: str) -> Path:
    """Write the mechanism in motion as a GIF file, as fast as it moves; returns ``path``.

    ``time``: s, evenly spaced; ``motion``: the poses by sample index. At most MAX_FRAMES frames: a longer run is
    shown with fewer per second. Raises HilserverError if it can't be written.
    """
    step = float(time[1] - time[0]) if len(time) > 1 else 1.0
    every = max(1, round(1.0 / (FRAMES_PER_SECOND * step)), -(-len(time) // MAX_FRAMES))
    frames = list(range(0, len(time), every))
    figure = Figure(figsize=(6, 4.5), layout="constrained", dpi=80)
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    poses = [motion(k) for k in frames]
    limits = _limits(m, poses)
    writer = PillowWriter(fps=round(1.0 / (every * step)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with writer.saving(figure, str(path), figure.dpi):
            for k, shown in zip(frames, poses, strict=True):
                axis.clear()
                _prepare(axis, m, limits, f"{name}, {time[k]:.2f} s")
                _draw(axis, m, shown, named=False)
                if k == 0:  # all frames are laid out as the first one
                    figure.draw_without_rendering()
                    figure.set_layout_engine("none")
                writer.grab_frame()
    except OSError as error:
        raise HilserverError(f"{path}: can't be written: {error.strerror or error}.") from error
    return path


def _points(m: Mechanism) -> Iterator[tuple[str, Vector]]:
    """Points of the picture: the body that each one moves with, and its position in the drawing."""
    for joint in m.joints.values():
        yield from ((name, joint.point) for name in joint.between)
    for actuator in m.actuators.values():
        if isinstance(actuator, Linear):
            yield from zip(actuator.between, actuator.pins, strict=True)
    for name, body in m.bodies.items():
        yield from ((name, corner) for corner in (body.centre, *(body.outline or ())))


def _at(m: Mechanism, poses: Poses, body: str, point: Vector) -> tuple[float, float]:
    """Position in the picture of a point of the drawing after its body has moved."""
    place = in_space(point)
    if body != GROUND:
        rotation, origin = poses[body]
        place = rotation @ place + origin
    if m.planar:
        return float(place[0]), float(place[1])
    return float(place[0] + OBLIQUE * place[1]), float(place[2] + OBLIQUE * place[1])


def _limits(m: Mechanism, poses_shown: Sequence[Poses]) -> tuple[Floats, Floats]:
    """The lower left and the upper right corner of a picture that holds all poses."""
    points = np.array([_at(m, poses, *point) for poses in poses_shown for point in _points(m)])
    low, high = points.min(axis=0), points.max(axis=0)
    room = MARGIN * max(*(high - low), 1e-3)
    return low - room, high + room


def _prepare(axis: Axes, m: Mechanism, limits: tuple[Floats, Floats], title: str) -> None:
    """Title, equal scales, and limits."""
    low, high = limits
    axis.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    axis.set_aspect("equal")
    axis.set_title(title, fontsize=9, wrap=True)
    axis.set_xlabel("x, m")
    axis.set_ylabel("y, m" if m.planar else "z, m")
    axis.grid(alpha=0.2)


def _draw(axis: Axes, m: Mechanism, poses: Poses, named: bool) -> None:
    for number, name in enumerate(m.bodies):
        _draw_body(axis, m, poses, name, f"C{number % 10}", named)
    for actuator in m.actuators.values():
        if isinstance(actuator, Linear):
            _draw_cylinder(axis, m, poses, actuator)
    for joint in (joint for name, joint in m.joints.items() if "." not in name):  # not those of a cylinder
        x, y = _at(m, poses, joint.between[0], joint.point)
        if GROUND in joint.between:
            axis.plot(x, y, marker="^", ms=11, color="0.55", zorder=3)
        if isinstance(joint, Prismatic):
            x, y = _at(m, poses, joint.between[1], joint.point)
            axis.plot(x, y, marker="s", ms=7, mfc="white", mec="black", zorder=5)
        else:
            axis.plot(x, y, marker="o", ms=5, mfc="white", mec="black", zorder=5)


def _draw_body(axis: Axes, m: Mechanism, poses: Poses, name: str, colour: str, named: bool) -> None:
    """Its outline, or bars from its centre of mass to its joints."""
    body = m.bodies[name]
    x, y = _at(m, poses, name, body.centre)
    if body.outline is not None:
        corners = [_at(m, poses, name, corner) for corner in body.outline]
        axis.add_patch(Polygon(corners, facecolor=colour, edgecolor=colour, alpha=0.35, lw=1.2, zorder=1))
    else:
        for joint in m.joints.values():
            if name in joint.between:
                px, py = _at(m, poses, name, joint.point)
                axis.plot([x, px], [y, py], color=colour, lw=3.0, alpha=0.7, solid_capstyle="round", zorder=1)
    axis.plot(x, y, marker="+", ms=8, color=colour, zorder=4)
    if named:
        axis.annotate(name, (x, y), xytext=(4, 4), textcoords="offset points", fontsize=8, color=colour)


def _draw_cylinder(axis: Axes, m: Mechanism, poses: Poses, actuator: Linear) -> None:
    """The barrel is a little shorter than the retracted cylinder; the rod reaches to the other pin."""
    (x1, y1), (x2, y2) = (_at(m, poses, *end) for end in zip(actuator.between, actuator.pins, strict=True))
    length = float(np.hypot(x2 - x1, y2 - y1))
    share = min(0.92 * (actuator.retracted or 0.6 * actuator.drawn_length) / max(length, 1e-9), 0.95)
    axis.plot([x1, x2], [y1, y2], color="0.35", lw=2.0, zorder=2)
    axis.plot([x1, x1 + share * (x2 - x1)], [y1, y1 + share * (y2 - y1)], color="0.35", lw=6.0, zorder=2)
    for end, x, y in ((actuator.between[0], x1, y1), (actuator.between[1], x2, y2)):
        axis.plot(x, y, marker="o", ms=4, mfc="white", mec="black", zorder=5)
        if end == GROUND:
            axis.plot(x, y, marker="^", ms=11, color="0.55", zorder=3)


# --- as a table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """Report of `check` on a mechanism: its bodies (name, mass, moments of inertia, joints), notes, and a line."""

    bodies: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    line: str


def summary(name: str, m: Mechanism) -> Summary:
    """Bodies and joints counted, degrees of freedom, redundant constraints named."""
    freedom, redundant = _mobility(m)
    bodies = []
    for body, values in m.bodies.items():
        joints = ", ".join(joint for joint, entry in m.joints.items() if body in entry.between)
        bodies.append((body, f"{values.mass:g} kg", f"{', '.join(f'{J:g}' for J in values.inertia)} kg·m²", joints))
    notes = [f"mechanism {name}: redundant constraint, {text}: it is omitted, and its force is indeterminate."
             for text in redundant]  # fmt: skip
    if freedom < len(m.actuators):
        notes.append(
            f"mechanism {name}: {len(m.actuators)} actuators on {freedom} degrees of freedom: they work against each "
            "other, or a joint blocks the motion."
        )
    counted = [f"{len(m.bodies)} bod{'y' if len(m.bodies) == 1 else 'ies'}", _many(len(m.joints), "joint")]
    line = f"{name}: {', '.join(counted)}, {freedom} degree{'' if freedom == 1 else 's'} of freedom."
    return Summary(tuple(bodies), tuple(notes), line)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _mobility(m: Mechanism) -> tuple[int, list[str]]:
    """Degrees of freedom, and what is redundant, in words."""
    if m.planar:
        found = mobility(m)
        return found.freedom, [f"{_many(n, 'constraint')} of joint {joint}" for joint, n in found.redundant.items()]
    tree = tree_of(m)
    return tree.freedom, [row.name for row in tree.redundant]


# --- of a run ---------------------------------------------------------------------------------------------------------


def poses_at(placed: PlacedMechanism, series: Mapping[str, Floats]) -> Callable[[int], Poses]:
    """Poses of a mechanism's bodies from a circuit's recorded values, by sample index."""
    m, prefix = placed.mechanism, placed.name
    if m.method == "recursive":
        tree = tree_of(m)
        names = [f"{prefix}.{name}" for name, _ in tree.state_names()]
        return lambda index: chain_poses(tree, np.array([series[name][index] for name in names]))

    def absolute(index: int) -> Poses:
        states = {n: [float(series[f"{prefix}.{n}.{part}"][index]) for part in ("x", "y", "angle")] for n in m.bodies}
        return {name: planar_pose(m, name, *state) for name, state in states.items()}

    return absolute
