"""Constants of the valves in the plan, against independent calculations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import expm

from hilserver.rig.valves import spool_matrix


@pytest.mark.parametrize("damping", [0.1, 0.7, 1.0 - 1e-9, 1.0, 1.0 + 1e-9, 3.0])
@pytest.mark.parametrize("h", [1e-6, 1e-3, 0.1])
def test_the_spool_between_two_commands_is_the_matrix_exponential(damping: float, h: float) -> None:
    omega = 2.0 * np.pi * 80.0
    motion = np.array([[0.0, 1.0], [-omega * omega, -2.0 * damping * omega]])
    expected = expm(motion * h).ravel()
    scale = np.array([1.0, 1.0 / omega, omega, 1.0])
    assert np.array(spool_matrix(0.0, omega, damping, h)) / scale == pytest.approx(expected / scale, abs=1e-10)


def test_a_spool_of_first_order_decays() -> None:
    assert spool_matrix(0.01, 0.0, 0.0, 0.005) == pytest.approx([np.exp(-0.5), 0.0, 0.0, 0.0])
