"""Commands and forces that are later than stated: found while the rig runs, against the exact motion of the whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from actuator_rigs import Oscillator, Specimen, Stand, moved, part, share

from hilserver.record.reader import LogReader
from hilserver.rig.build import load_rig
from hilserver.sequences.model import load_sequence
from hilserver.sequences.simulated import simulate_sequence
from hilserver.tick.codes import Mode

STIFF = Oscillator(1000.0, 3.0, 0.05, 1000.0, Specimen(30.0, 120.0, 1.2e6))
SLENDER = Oscillator(1000.0, 3.0, 0.02, 300.0, Specimen(30.0, 120.0, 3e5))
NOISE = (2e-6, 20.0)
HELD = {"rig": {"actuators": {"table": {"bridge": {"learn": False}}}}}


def late_stand(virtual: Oscillator, command: float, force: float, displacement: float = 0.0) -> Stand:
    """A rig whose file says nothing of these delays, s."""
    late = (displacement, force)
    return Stand(virtual.circuit(), 1000.0, virtual.specimen, late=late, command=(command, 0.0), noise=NOISE)


@pytest.mark.parametrize("virtual", [STIFF, SLENDER])
@pytest.mark.parametrize(
    ("command", "force"), [(0.001, 0.0), (0.002, 0.0), (0.0, 0.001), (0.0, 0.002), (0.001, 0.001), (0.002, 0.002)]
)
def test_a_delay_that_is_not_stated_is_found_within_seconds(virtual: Oscillator, command: float, force: float) -> None:
    """Without tracking, these are 13 to 190 % off, and some end with a trip."""
    motion = moved(late_stand(virtual, command, force).rig(), 10.0)
    k = motion.time > 8.0
    assert share(motion.real[k], virtual.right(motion.time)[k]) < 0.01
    assert motion.column("actuator.table.late_command")[-1] == pytest.approx(command, abs=1e-4)
    assert motion.column("actuator.table.late_force")[-1] == pytest.approx(force, abs=1e-4)


def test_the_circuit_is_right_if_both_sensors_are_late() -> None:
    """This cannot be told from a late command, as which it is compensated: the specimen is ahead by as much."""
    motion = moved(late_stand(STIFF, 0.0, 0.002, 0.002).rig(), 10.0)
    k = motion.time > 8.0
    right = STIFF.right(motion.time)
    assert share(motion.virtual[k], right[k]) < 0.005
    ahead = STIFF.right(motion.time + 0.002)
    assert share(motion.real[k], ahead[k]) < 0.005


def test_without_tracking_a_late_command_stays_late() -> None:
    motion = moved(replace(late_stand(STIFF, 0.002, 0.0), changes=HELD).rig(), 8.0)
    k = motion.time > 6.0
    assert share(motion.real[k], STIFF.right(motion.time)[k]) > 0.3
    assert not motion.column("actuator.table.late_command").any()


@pytest.mark.parametrize("stated", [0.0, 3000.0])
def test_a_wrong_damping_is_no_delay(stated: float) -> None:
    """The true one is 500 N s/m. Nothing tracks it, and the circuit gets the force as it is measured.

    If 3000 N s/m were taken for granted, this force would seem to be 2 ms late.
    """
    virtual = Oscillator(1000.0, 3.0, 0.05, 300.0, Specimen(30.0, 500.0, 1.2e6))
    known = replace(virtual.specimen, damping=stated)
    motion = moved(Stand(virtual.circuit(), 1000.0, virtual.specimen, known, noise=NOISE).rig(), 10.0)
    assert not motion.column("actuator.table.late_force").any()
    k = motion.time > 8.0
    assert share(motion.real[k], virtual.right(motion.time)[k]) < 0.1


def test_friction_of_the_specimen_is_no_delay() -> None:
    """Friction takes up energy; a force that is late supplies it."""
    specimen = Specimen(30.0, 120.0, 3e5)
    rub = part("friction", {"rod": "table"}, coulomb="300 N", static="300 N")
    stand = Stand(SLENDER.circuit(), 1000.0, specimen, machine=specimen.machine(0.0, rub=rub), noise=NOISE)
    motion = moved(stand.rig(), 8.0)
    assert np.ptp(motion.real[motion.time > 4.0]) > 1e-3
    assert not motion.column("actuator.table.late_force").any()


def test_tracking_begins_when_a_strategy_that_tracks_is_selected() -> None:
    """Until then, the delays are held at the stated ones, and known with certainty."""
    stand = replace(late_stand(STIFF, 0.002, 0.0), strategy="state_feedback")
    motion = moved(stand.rig(), 5.0, lambda run: run.select("prediction", "table"))
    assert motion.column("actuator.table.late_command")[-1] == pytest.approx(0.002, abs=1e-4)


def test_a_delay_of_the_force_is_found_beside_an_uncertain_damping() -> None:
    """The filter explains it by a negative damping first; that cannot be true, and is seen in what is measured."""
    uncertain = {"rig": {"actuators": {"table": {"uncertainty": {"specimen_damping": 1.0}}}}}
    motion = moved(replace(late_stand(STIFF, 0.0, 0.002), changes=uncertain).rig(), 12.0)
    k = motion.time > 10.0
    assert share(motion.real[k], STIFF.right(motion.time)[k]) < 0.02
    assert motion.column("actuator.table.late_force")[-1] == pytest.approx(0.002, abs=3e-4)


def test_after_the_fault_of_a_sensor_the_filter_begins_again(tmp_path: Path) -> None:
    """In the golden run, the displacement reads 40 mm for 50 ms; the reset is at 0.4 s."""
    sequence = load_sequence(Path(__file__).parents[1] / "golden/frame.toml")
    assert sequence.rig_file is not None
    log = tmp_path / "frame.arrow"
    assert simulate_sequence(sequence, load_rig(sequence.rig_file), log).ok
    rows = LogReader(log).read_all()
    safe = rows.columns["mode"] == Mode.SAFE
    after = safe & (np.arange(len(safe)) > np.flatnonzero(rows.columns["mode"] == Mode.FAULT)[-1] + 20)
    assert np.count_nonzero(after) > 100
    away = rows.columns["actuator.table.estimate"][after] - rows.columns["actuator.table.measured"][after]
    assert np.abs(away).max() < 0.1e-3
