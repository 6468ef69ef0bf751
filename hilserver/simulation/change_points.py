"""Change points of mechanisms in a circuit: positions in which a closed loop can continue in more than one way.

A parallelogram with all its bars in line can continue as a parallelogram or crosswise. The derivatives of the loop's
constraints lose rank there, so that rounding, and not the equations of motion, determines the further motion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from hilserver.circuit.mechanisms import PlacedMechanism
from hilserver.mechanics.assembly import Assembly, needed
from hilserver.mechanics.assembly import start as planar_start
from hilserver.mechanics.cutting import tree_of
from hilserver.mechanics.position import closure_jacobian
from hilserver.numerics.arrays import Floats

LOOKS = 400
"""Number of times of a run at which the loops are examined first; around the lowest of them, every time is examined."""
NEAR = 0.02
"""Smallest singular value, relative to the largest one of the run, below which a change point is passed or touched."""


def change_points(placed: PlacedMechanism, time: Floats, series: Mapping[str, Floats]) -> Iterator[tuple[float, float]]:
    """Times, s, at which a loop reaches a change point, and how near it comes (0: exactly), one for each passage."""
    names, stiffness = loop_stiffness(placed)
    states = np.column_stack([series[f"{placed.name}.{name}"] for name in names])
    states = states[: int(np.argmin(np.append(np.isfinite(states).all(axis=1), False)))]
    if len(states) == 0 or stiffness(states[0]) is None:
        return
    at = np.unique(np.linspace(0, len(states) - 1, LOOKS).astype(int))
    seen = {int(k): stiffness(states[k]) or 0.0 for k in at}
    for before, k, after in zip(at[:-2], at[1:-1], at[2:], strict=True):
        if seen[int(k)] <= min(seen[int(before)], seen[int(after)]):
            for j in range(int(before) + 1, int(after)):
                seen.setdefault(j, stiffness(states[j]) or 0.0)
    rows = sorted(seen)
    values = np.array([seen[k] for k in rows]) / max(seen.values())
    lowest = np.append(np.inf, values)[:-1] >= values
    lowest &= np.append(values, np.inf)[1:] > values
    for k in np.flatnonzero(lowest & (values < NEAR)):
        yield float(time[rows[k]]), float(values[k])


def loop_stiffness(placed: PlacedMechanism) -> tuple[list[str], Callable[[Floats], float | None]]:
    """Names of the states, and the smallest singular value of the loops' constraints at a state; None without loops."""
    m = placed.mechanism
    if m.method == "recursive":
        tree = tree_of(m)
        return [name for name, _ in tree.state_names()], lambda y: _smallest(closure_jacobian(tree, y))
    assembly = Assembly(m, needed(m, planar_start(m)))
    names = [f"{body}.{part}" for body in m.bodies for part in ("x", "y", "angle", "vx", "vy", "w")]
    return names, lambda states: _smallest(assembly.of(states)[2])


def _smallest(jacobian: Floats) -> float | None:
    return float(np.linalg.svd(jacobian, compute_uv=False)[-1]) if len(jacobian) else None


def change_point_note(placed: PlacedMechanism, time: Floats, series: Mapping[str, Floats]) -> str | None:
    """The findings, in sentences for the user; None if no loop came near a change point."""
    found = list(change_points(placed, time, series))
    if not found:
        return None
    first, often = found[0][0], f" and {len(found) - 1} more" if len(found) > 1 else ""
    return (
        f"mechanism {placed.name} reaches a change point at {first:.4g} s{often}: there a closed loop can continue in "
        "more than one way (as a parallelogram or crosswise), and rounding decides which. The motion after it is "
        "unreliable, and a shorter step does not help. Stay away from this position, or change a "
        "length so that the loop has only one way."
    )
