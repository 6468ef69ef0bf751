"""Oscillation of an actuator against its node: what is reported as one, and what is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from actuator_rigs import Motion, Oscillator, Specimen, Stand, moved

from hilserver.tick.codes import Saturation

LIGHT = Oscillator(40.0, 8.0, 0.1, 300.0, Specimen(30.0, 500.0, 1.8e5))
HEAVY = Oscillator(1000.0, 3.0, 0.05, 3000.0, Specimen(30.0, 120.0, 1.2e6))


def reported(motion: Motion, begin: float, end: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether it is, in each tick between these times, s."""
    flags = motion.column("actuator.table.saturation").view(np.int64)
    return (flags[(motion.time > begin) & (motion.time < end)] & int(Saturation.OSCILLATION)) > 0


def test_an_unstable_loop_is_reported_within_a_second() -> None:
    """With the measured force, a node of 40 kg and a specimen of 30 kg oscillate at 60 Hz, within ``max_error``."""
    stand = Stand(LIGHT.circuit(), 1000.0, LIGHT.specimen, strategy="adaptive", noise=(0.0, 0.0))
    motion = moved(stand.rig(), 8.0)
    swing = np.abs(motion.real - motion.virtual) > 1e-3
    first = float(motion.time[np.flatnonzero(swing & (motion.time > 3.0))[0]])
    assert reported(motion, first + 1.0, 8.0).all()


@pytest.mark.parametrize("strategy", ["state_feedback", "prediction"])
@pytest.mark.parametrize("late", [0.0, 2e-3])
def test_a_node_that_oscillates_is_followed_without_a_report(strategy: str, late: float) -> None:
    """Three sines around 3 Hz, up to 10 mm; also with a delay of the commands that makes an error of 4 %."""
    stand = Stand(HEAVY.circuit(), 1000.0, HEAVY.specimen, strategy=strategy, command=(late, 0.0))
    motion = moved(stand.rig(), 8.0)
    assert np.ptp(motion.virtual) > 5e-3
    assert not reported(motion, 2.0, 8.0).any()


def test_noise_at_rest_is_no_oscillation() -> None:
    """0.1 % of the range of the load cell."""
    virtual = replace(HEAVY, force=0.0)
    motion = moved(Stand(virtual.circuit(), 1000.0, virtual.specimen, noise=(1e-5, 200.0)).rig(), 5.0)
    assert not reported(motion, 2.0, 5.0).any()


def test_by_hand_and_directly_nothing_is_reported() -> None:
    """The command of `direct` is the position itself: its error is the lag of the actuator."""
    motion = moved(Stand(HEAVY.circuit(), 1000.0, HEAVY.specimen, strategy="direct").rig(), 5.0)
    assert not reported(motion, 2.0, 5.0).any()
