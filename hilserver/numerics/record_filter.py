"""A filter over a whole record (see `hilserver.identify.fit.Whitener`)."""

from __future__ import annotations

from hilserver.numerics.arrays import Floats
from hilserver.numerics.compilable import compilable

BLOCK = 512
"""Samples that are filtered at a time: they stay in the cache while one coefficient after the other is applied."""


@compilable
def filter_record(record: Floats, model: Floats, pole: float, filtered: Floats) -> None:
    r"""Filter a record into ``filtered``, from rest:

    .. math:: y_k = p\,y_{k-1} + \sum_j m_j\,x_{k-j}
    """
    n = len(record)
    for begin in range(0, n, BLOCK):
        end = min(begin + BLOCK, n)
        for k in range(begin, end):
            filtered[k] = 0.0
        for j in range(len(model)):
            first, factor = max(begin, j), model[j]
            earlier, later = record[first - j : end - j], filtered[first:end]
            for k in range(len(later)):
                later[k] += factor * earlier[k]
    last = 0.0
    for k in range(n):
        last = filtered[k] + pole * last
        filtered[k] = last
