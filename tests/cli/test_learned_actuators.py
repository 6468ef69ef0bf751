"""``hilserver learned`` for actuators: what their bridges have tracked, from a log or a server, into the rig file."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import Command
from service_harness import CONFIG

from hilserver import client
from hilserver.commissioning.learned_settings import check_origin, learned_fragment, learned_of_log, left_out
from hilserver.errors import HilserverError
from hilserver.protocol.published import ServerState
from hilserver.rig.build import load_rig
from hilserver.service.actuator_status import actuator_statuses
from hilserver.simulation.lockstep import LockstepRun

STIFFNESS = 1.23e6
"""N/m, of the true specimen; the rig file states 1.19e6."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, ServerState]:
    """A rig whose specimen is stiffer than stated, the log of an earthquake, and the server's state at its end."""
    folder = tmp_path_factory.mktemp("learned")
    shutil.copytree(CONFIG, folder / "config")
    specimen = folder / "config/circuits/frame_specimen.toml"
    assert specimen.read_text().count("1.19e6 N/m") == 1
    specimen.write_text(specimen.read_text().replace("1.19e6 N/m", f"{STIFFNESS:g} N/m"))
    file, log = folder / "config/rigs/frame.toml", folder / "frame.arrow"
    rig = load_rig(file)
    with LockstepRun(rig, log) as run:
        run.start()
        run.run(12 * 4096)
        assert run.mode == "RUNNING"
        state = ServerState(mode="RUNNING", tick=7, time=0.0, actuators=actuator_statuses(rig, run.row))
    return file, log, state


def test_values_of_a_log_are_those_of_the_server_with_their_deviations(kept: tuple[Path, Path, ServerState]) -> None:
    file, log, state = kept
    found = learned_of_log(log)
    assert found == {"table": state.actuators["table"].learned}
    stiffness = found["table"]["specimen_stiffness"]
    assert stiffness.deviation is not None
    assert abs(stiffness.value - STIFFNESS) < 3e-3 * STIFFNESS
    assert 0.0 < stiffness.deviation < 3e-3 * STIFFNESS
    spread = load_rig(file).settings.actuators["table"].spread()
    assert all(value.deviation < spread[name] for name, value in found["table"].items() if value.deviation is not None)


def test_they_are_shown_and_merged_into_the_rig_file(
    kept: tuple[Path, Path, ServerState], hilserver: Command, tmp_path: Path
) -> None:
    shutil.copytree(kept[0].parents[1], tmp_path / "config")
    file, log = tmp_path / "config/rigs/frame.toml", kept[1]
    before = load_rig(file).settings.actuators["table"]
    done = hilserver("learned", file, "--log", log, "--apply", "--yes")
    assert (done.code, done.err) == (0, "")
    assert "learned about an actuator" in done.out
    assert "learned about a valve" not in done.out
    (line,) = [line for line in file.read_text().splitlines() if line.startswith("stiffness")]
    value = learned_of_log(log)["table"]["specimen_stiffness"]
    assert value.deviation is not None
    after = load_rig(file).settings.actuators["table"]
    assert after.specimen.stiffness == pytest.approx(value.value, abs=value.deviation)
    assert f"# ± {value.deviation:.0f}"[:5] in line
    assert "N/m, learned on " in line
    assert (after.specimen.mass, after.servo.damping) == (before.specimen.mass, before.servo.damping)
    assert after.uncertainty == before.uncertainty
    again = hilserver("learned", file, "--log", log, "--apply", "--yes")
    assert again.code == 2
    assert "actuators.table.specimen.stiffness is 1.2" in again.err
    assert "but this was learned with 1.19e+06 N/m" in again.err


def test_values_of_the_running_server(
    kept: tuple[Path, Path, ServerState], hilserver: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "status", lambda *_: SimpleNamespace(state=kept[2], online=True))
    shown = hilserver("learned", kept[0], "--broker", "127.0.0.1:1")
    assert (shown.code, shown.err) == (0, "")
    assert "specimen_stiffness" in shown.out


def test_what_is_not_known_or_at_a_bound_is_left_out(kept: tuple[Path, Path, ServerState]) -> None:
    rig = load_rig(kept[0])
    values = kept[2].actuators["table"].learned
    changed = {
        "specimen_stiffness": values["specimen_stiffness"].model_copy(update={"at_bound": True}),
        "specimen_damping": values["specimen_damping"].model_copy(update={"known": False, "state": "not excited yet"}),
        "f90": values["f90"].model_copy(update={"known": False, "state": "off: strategy direct"}),
        "velocity_gain": values["velocity_gain"].model_copy(update={"value": 51.0, "deviation": 0.026}),
    }
    assert learned_fragment(rig, {"table": changed}) == (
        '[actuators.table.servo]\nvelocity_gain = "51.000 1/s"  # ± 0.026 1/s'
    )
    assert list(left_out({"table": changed})) == [
        "actuators.table.specimen.stiffness is at its bound, so it is not the true value: identify the actuator.",
        "actuators.table.specimen.damping is unknown: the movements of the actuator have not determined it.",
        "actuators.table.servo.f90 is not tracked at present (off: strategy direct).",
    ]
    with pytest.raises(HilserverError, match='has no actuator "tabel", for which values were learned'):
        check_origin(rig, {"tabel": changed})
