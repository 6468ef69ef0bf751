"""Linear models from their matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from hilserver.circuit.analysis import LinearModel


def linear(*matrices: Any) -> LinearModel:
    """From A, B, C and D."""
    A, B, C, D = (np.array(matrix, dtype=float) for matrix in matrices)
    return LinearModel(A, B, C, D, tuple(f"x{i}" for i in range(len(A))), np.ones(len(A)))
