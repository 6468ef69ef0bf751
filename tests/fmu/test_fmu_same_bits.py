"""Circuits run as FMUs in two importers, bit by bit as `hilserver simulate` runs them; the files are valid."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from fmpy.validation import validate_fmu
from fmu_bench import CONFIG, NAMES, exported, in_c, in_fmpy, in_hilserver, in_motion, needs_compiler

from hilserver.numerics.arrays import Floats

TICKS = 4_000
"""4 s: more than a period of each of the inputs' waves."""


@functools.cache
def in_hilserver_once(circuit: Path, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Floats:
    """The same for FMUs of both versions."""
    return in_hilserver(circuit, [*inputs], in_motion(len(inputs), TICKS), [*outputs])


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("fmi", ["2.0", "3.0"])
@pytest.mark.parametrize("name", NAMES)
def test_circuit_runs_as_in_hilserver(name: str, fmi: str, tmp_path: Path) -> None:
    """Also beside another instance, and with steps that were taken back (fmu_importer.c)."""
    fmu = exported(CONFIG / f"circuits/{name}.toml", tmp_path, fmi)
    assert validate_fmu(str(fmu.file)) == []
    given = in_motion(len(fmu.inputs), TICKS)
    expected = in_hilserver_once(fmu.circuit, (*fmu.inputs,), (*fmu.outputs,))
    assert np.ptp(expected, axis=0).max() > 0.0
    assert np.isfinite(expected).all()
    for found in (in_fmpy(fmu, given), in_c(fmu, given)):
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes()
