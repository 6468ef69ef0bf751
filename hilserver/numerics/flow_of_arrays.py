"""The orifice law and its inverse for arrays; for single values see :mod:`hilserver.numerics.flow`."""

from __future__ import annotations

import numpy as np

from hilserver.numerics.arrays import Floats


def orifice_law(drop: Floats, p_tr: float) -> Floats:
    """The orifice law (:func:`hilserver.numerics.flow.root_of_drop`) of many drops, sqrt(Pa).

    >>> orifice_law(np.array([4e6, -4e6, 0.0]), 1e5).tolist()
    [2000.0, -2000.0, 0.0]
    """
    r = np.clip(drop / p_tr, -1.0, 1.0)
    laminar = np.sqrt(p_tr) * r * (3.0 - np.abs(r)) * 0.5
    law: Floats = np.where(np.abs(drop) < p_tr, laminar, np.sign(drop) * np.sqrt(np.abs(drop)))
    return law


def drop_of_law(law: Floats, p_tr: Floats | float) -> Floats:
    """The drops, Pa, at which the orifice law has these values, sqrt(Pa): the inverse of :func:`orifice_law`.

    >>> drop_of_law(orifice_law(np.array([4e6, -2e4]), 1e5), 1e5).round(6).tolist()
    [4000000.0, -20000.0]
    """
    share = np.minimum(np.abs(law) / np.sqrt(p_tr), 1.0)
    laminar = np.sign(law) * p_tr * 0.5 * (3.0 - np.sqrt(9.0 - 8.0 * share))
    return np.asarray(np.where(law * law < p_tr, laminar, law * np.abs(law)))
