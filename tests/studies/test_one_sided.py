"""Parameters that a recording bounds on one side only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from hilserver.numerics.arrays import Floats
from hilserver.studies.one_sided import open_sides

TIME = np.linspace(0.0, 1.0, 1001)
NOISE = 2e-3
BOUNDS = {"gain": (0.1, 10.0), "level": (0.1, 10.0)}


def predicted(values: Mapping[str, float]) -> list[Floats]:
    """A signal that rises to 1 until a level limits it, as a relief valve limits a pressure."""
    return [np.minimum(values["gain"] * TIME, values["level"])]


@dataclass
class Found:
    """The result of a fit: the best values, and their covariance by the derivatives of the model (analytic)."""

    values: Mapping[str, float]

    def covariance_with(self, names: Sequence[str]) -> Floats:
        limited = self.values["gain"] * TIME >= self.values["level"]
        derivatives = {"gain": np.where(limited, 0.0, TIME), "level": limited.astype(np.float64)}
        jacobian = np.column_stack([derivatives[name] for name in names]) / NOISE
        return np.asarray(np.linalg.inv(jacobian.T @ jacobian))


@pytest.mark.parametrize(("level", "opened"), [(0.999, {"level": 1}), (0.7, {})])
def test_a_limit_that_is_hardly_reached_has_no_upper_end(level: float, opened: dict[str, int]) -> None:
    """Two samples of 1001 reach 0.999, which any larger level explains as well; 0.7 is known from both sides."""
    found = Found({"gain": 1.0, "level": level})
    assert open_sides(found, BOUNDS, predicted, [len(TIME)], [NOISE]) == opened


def test_at_a_bound_nothing_is_said() -> None:
    found = Found({"gain": 1.0, "level": 0.999})
    assert open_sides(found, {"level": (0.1, 1.0)}, predicted, [len(TIME)], [NOISE]) == {}
