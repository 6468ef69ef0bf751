"""The array types of compiled code."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Indices = NDArray[np.uint64]
"""A packed circuit's index: unsigned, so that compiled code need not check for negative ones."""
