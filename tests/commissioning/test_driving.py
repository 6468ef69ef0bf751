"""``hilserver fidelity --drive``: a rig driven through its work cycle in real time, and its log evaluated."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from service_harness import rig_text

from hilserver.commissioning.driving import record_by_hand, record_passes
from hilserver.errors import HilserverError
from hilserver.fidelity.from_log import fidelity_of_log
from hilserver.fidelity.strategies import with_cycle
from hilserver.fidelity.sweeps import after_cycle, sweep_of
from hilserver.identify import excitation
from hilserver.identify.design import RoundPart
from hilserver.identify.excitation import Extent
from hilserver.identify.identification import identify_valve
from hilserver.identify.recorded import Recording, recording_of_log
from hilserver.realtime.segment_folder import segment_path
from hilserver.record.reader import LogReader
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig
from hilserver.tick.codes import Mode

pytestmark = pytest.mark.realtime

WITHIN = Extent(10.0, 0.4, end_stops=False)

POINTS = 'points = [["0 s", 0.0], ["0.3 s", 0.5], ["0.8 s", 0.5], ["1.1 s", 0.0]]'


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """The demo's rig under a name of its own, with a short work cycle and a sweep of one sine."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "cycle.toml").write_text(f"[inputs.joystick]\n{POINTS}\n")
    name = f"test_{os.getpid()}_driving"
    file = tmp_path / "rig.toml"
    file.write_text(rig_text(name, tmp_path, {"cycle =": 'cycle = "cycle.toml"'}))
    loaded = load_rig(file)
    return with_cycle(loaded, after_cycle(loaded, "joystick", sweep_of(loaded, "joystick", (5.0,))))


def left_behind(rig: Rig, folder: Path) -> list[str]:
    """Shared memory and notes of the rig's server."""
    name = rig.settings.name
    return [str(p) for p in (*segment_path("").glob(f"{name}*"), *(folder / "hilserver").glob(f"{name}*"))]


def test_two_passes_are_driven_recorded_and_evaluated(rig: Rig, tmp_path: Path) -> None:
    told: list[str] = []
    log = asyncio.run(record_passes(rig, ["inverse_static", "prediction"], told.append))
    assert [line.rpartition(" ")[2] for line in told] == ["inverse_static", "prediction"]
    result = fidelity_of_log(rig, log)
    assert [variant.name for variant in result.variants] == ["inverse_static", "prediction"]
    assert result.reference == "the virtual circuit connected directly to the simulated machine"
    for variant in result.variants:
        assert variant.cycle is not None
        assert variant.sweep is not None
        assert variant.cycle.tracking["flow A"].nrmse < 0.05
        (response,) = variant.sweep.responses["flow A"]
        assert response.ratio == pytest.approx(1.0, abs=0.1)
        assert abs(response.phase) < 20.0  # up to 2 ms beside the spool's lag: two clocks that don't know of each other
    columns = LogReader(log).read_all().columns
    assert columns["mode"][-1] == Mode.SAFE
    assert columns["valve.main.command"][-1] == 0.0
    assert np.abs(columns["valve.main.command"]).max() > 0.1
    assert not left_behind(rig, tmp_path)


def test_a_rig_that_trips_ends_the_measurement(rig: Rig, tmp_path: Path) -> None:
    limits = {**rig.sources["rig"]["limits"], "stroke": {"channel": "x", "max": "230 mm", "action": "trip"}}
    tripping = with_cycle(rig, rig.sources["cycle"])
    sources = {**tripping.sources, "rig": {**tripping.sources["rig"], "limits": limits}}
    with pytest.raises(HilserverError, match=r"went to FAULT during its work cycle with prediction: limit stroke"):
        asyncio.run(record_passes(assemble(sources, rig.file, rig.library), ["prediction"], lambda _: None))
    assert not left_behind(rig, tmp_path)


def test_undrivable_rigs_are_refused_before_anything_starts(rig: Rig) -> None:
    with pytest.raises(HilserverError, match="there is no work cycle to run"):
        asyncio.run(record_passes(replace(rig, cycle=None), [None], lambda _: None))
    unrecorded = rig.settings.model_copy(
        update={"recording": rig.settings.recording.model_copy(update={"enabled": False})}
    )
    with pytest.raises(HilserverError, match=r"recording\.enabled is false"):
        asyncio.run(record_passes(replace(rig, settings=unrecorded), [None], lambda _: None))


def test_a_rig_that_trips_while_its_valves_are_moved_names_the_log_and_what_helps(rig: Rig) -> None:
    """In real time, it depends on a few milliseconds how large the commands are before the trip."""
    limits = {**rig.sources["rig"]["limits"], "p_A_high": {"channel": "p_A", "max": "70 bar", "action": "trip"}}
    sources = {**rig.sources, "rig": {**rig.sources["rig"], "limits": limits}}
    advice = (
        r"(Use smaller commands: --largest 0\.\d+|Smaller commands will not help) \(so far they were up to 0\.\d+\)"
    )
    said = rf"\(action trip\)\. Recorded so far: \S+\.arrow\. {advice}"
    with pytest.raises(HilserverError, match=said):
        asyncio.run(record_by_hand(assemble(sources, rig.file, rig.library), ["main"], WITHIN))


def test_valves_are_moved_by_hand_and_identified_from_the_log(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In real time, with the demo's flow sensor: what is in the rig file is what is found.

    After its first part, the sequence goes on with what the log shows to be uncertain while it is still being written.
    """
    shown: list[Recording] = []

    def needed(_: Rig, recording: Recording, valves: list[str], most: float) -> dict[RoundPart, float]:
        assert valves == ["main"]
        assert most < 6.0
        shown.append(recording)
        return {RoundPart.STEPS: 3.0}

    monkeypatch.setattr(excitation, "still_needed", needed)
    log = asyncio.run(record_by_hand(rig, ["main"], replace(WITHIN, longest=16.0)))
    columns = LogReader(log).read_all().columns
    assert shown[0].known.mean() > 0.8
    assert np.abs(shown[0].commands["main"]).max() > 0.1
    moved = np.flatnonzero(columns["valve.main.command"] != 0.0)
    assert float(np.ptp(columns["tick"][moved])) / rig.settings.loop.rate > 12.0
    command = columns["valve.main.command"]
    assert 0.1 < np.abs(command).max() <= 0.4
    assert command[-1] == 0.0
    assert columns["mode"][-1] == Mode.SAFE
    found = identify_valve(rig, recording_of_log(rig, log), "main")
    assert found.values["C_PA"] == pytest.approx(1.0, rel=0.05)
    assert found.values["C_AT"] == pytest.approx(1.0, rel=0.05)
    assert not left_behind(rig, tmp_path)


def test_a_limit_ends_the_moving_by_hand(rig: Rig, tmp_path: Path) -> None:
    limits = {**rig.sources["rig"]["limits"], "quick": {"channel": "Q_A", "max": "3 l/min", "action": "trip"}}
    tripping = assemble({**rig.sources, "rig": {**rig.sources["rig"], "limits": limits}}, rig.file, rig.library)
    with pytest.raises(HilserverError, match=r"limit quick"):
        asyncio.run(record_by_hand(tripping, ["main"], replace(WITHIN, seconds=12.0)))
    assert not left_behind(rig, tmp_path)
