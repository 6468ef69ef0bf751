"""``hilserver learned``: values from a log beside those of the rig file, and into the rig file."""

from __future__ import annotations

import io
import re
import shlex
import shutil
from pathlib import Path

import pytest
from command_line import Command
from lift_bench import FILE
from pages import only
from rich.console import Console

from hilserver.cli.status import learned_table
from hilserver.commissioning.learned_settings import check_origin, in_file, learned_fragment, learned_of_log, left_out
from hilserver.errors import HilserverError
from hilserver.protocol.driven import LearnedValue
from hilserver.rig.build import load_rig
from hilserver.rig.learned import are_known
from hilserver.simulation.lockstep import LockstepRun
from hilserver.tick.bridge.learning import NOISE
from hilserver.tick.records import blank
from hilserver.tick.row import LearningState, learning_state, valve_state


def test_two_values_that_the_movements_do_not_tell_apart_are_not_known() -> None:
    """Null and overlap, while only one edge opens: their effects are the same but for the sign."""
    seen = blank(LearningState)
    seen.seen_11 = seen.seen_22 = seen.seen_33 = 1e3 * NOISE
    seen.seen_44 = seen.seen_55 = 1e3 * NOISE
    assert are_known(seen) == [True] * 5
    seen.seen_45 = -0.9999 * seen.seen_44
    assert are_known(seen) == [True, True, True, False, False]
    assert are_known(blank(LearningState)) == [False] * 5


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A rig file with adaptive bridges, and a log at whose end valve A has learned something."""
    folder = tmp_path_factory.mktemp("learned")
    shutil.copytree(FILE.parents[1], folder / "config")
    file = folder / "config" / "rigs" / "lift.toml"
    file.write_text(file.read_text().replace('"feedback"', '"adaptive"'))
    rig, log = load_rig(file), folder / "logs" / "2026-11-26T10-02-11_lift.arrow"
    log.parent.mkdir()
    with LockstepRun(rig, log) as run:
        b, seen = valve_state(rig.plan, run.row, 0), learning_state(rig.plan, run.row, 0)
        b.gain_PA, b.gain_AT, b.null, b.overlap, b.delay = 0.95, 1.2, 0.0125, 0.02, 0.0005
        seen.seen_22 = seen.seen_33 = seen.seen_44 = seen.seen_55 = 1.0
        run.run(20)
    return file, log


def test_values_at_the_end_of_a_log(kept: tuple[Path, Path]) -> None:
    found = learned_of_log(kept[1])
    values = {key: value.value for key, value in found["A"].items()}
    assert values == pytest.approx(
        {"nominal_flow": 0.95e-3, "nominal_flow_to_tank": 1.2e-3, "delay": 1.5e-3, "overlap": 0.02, "null": -0.0125}
    )
    assert set(found["B"]) == set(found["A"])
    assert not any(value.known for value in found["B"].values())
    reasons = "\n".join(left_out(found))
    assert "valves.A.nominal_flow_to_tank is at its bound" in reasons
    assert "valves.A.delay is unknown" in reasons


def test_they_are_shown_and_merged_into_the_rig_file(
    kept: tuple[Path, Path], hilserver: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(kept[1].parents[1], tmp_path, dirs_exist_ok=True)
    file = tmp_path / "config/rigs/lift.toml"
    block = only("tested: tests/cli/test_learned_command.py::test_they_are_shown_and_merged_into_the_rig_file")
    ((command, lines),) = block.commands
    monkeypatch.chdir(tmp_path)
    arguments, before = shlex.split(command)[1:], file.read_text()
    shown = hilserver(*arguments, answers=io.StringIO("n\n"))
    assert shown.code == 1
    assert file.read_text() == before
    done = hilserver(*arguments, answers=io.StringIO("y\n"))
    assert done.code == 0, done.err
    for line in lines.splitlines():
        assert without_times(line.removesuffix(" y")) in without_times(done.out)
    valves = load_rig(file).settings.valves
    assert valves["A"].null == -0.0125
    assert valves["A"].overlap == 0.02
    assert valves["A"].nominal_flow.flow == pytest.approx(0.95e-3)
    assert valves["A"].nominal_flow_to_tank is not None, "at its bound: stays what it was"
    assert valves["A"].nominal_flow_to_tank.flow == pytest.approx(1e-3)
    assert valves["A"].delay == 1e-3
    assert valves["B"] == load_rig(FILE).settings.valves["B"].model_copy(update={"bridge": valves["B"].bridge})
    assert 'machine = "../circuits/lift_machine.toml"' in file.read_text()
    assert "\n\n[valves.B]\n" in file.read_text(), "empty lines stay"
    (old,) = file.parent.glob("lift.toml.*.old")
    assert old.read_text() == before
    viewed = hilserver(*arguments[:-1])
    assert viewed.code == 0
    assert "this was learned with 60 l/min" in viewed.out
    again = hilserver(*arguments, "--yes")
    assert again.code == 2
    assert "valves.A.nominal_flow is 57 l/min, but this was learned with 60 l/min" in again.err


def without_times(text: str) -> str:
    """A text without dates, times and the width of its columns."""
    return " ".join(re.sub(r"\d{4}-\d\d-\d\d(T[\d-]+)?", "DATE", text).split())


def test_without_a_server_it_says_what_to_do(kept: tuple[Path, Path], hilserver: Command) -> None:
    found = hilserver("learned", str(kept[0]), "--broker", "127.0.0.1:1")
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("MQTT broker 127.0.0.1:1: ")
    assert found.err.endswith("Is it running, and is the address right?\n")


def test_a_rig_without_that_valve_is_refused() -> None:
    value = LearnedValue(
        value=0.01, configured=0.0, minimum=-0.05, maximum=0.05, unit="", known=True, at_bound=False, state="tracked"
    )
    with pytest.raises(HilserverError, match='has no valve "C"'):
        check_origin(load_rig(FILE), {"C": {"null": value}})
    assert learned_fragment(load_rig(FILE), {"A": {"null": value}}) == "[valves.A]\nnull = 0.0100"
    same = value.model_copy(update={"value": 0.00001})
    assert learned_fragment(load_rig(FILE), {"A": {"null": same}}) == ""
    assert in_file("nominal_flow", 9.5e-4) == "57 l/min"


def test_status_shows_each_value_with_its_range_and_state() -> None:
    value = LearnedValue(
        value=1.5e-3, configured=1e-3, minimum=0.0, maximum=5e-3, unit="s", known=True, at_bound=False, state="tracked"
    )
    console = Console(record=True, width=120)
    console.print(learned_table({"A": {"delay": value}}))
    shown = " ".join(console.export_text().split())
    assert "A delay 1 ms 1.5 ms 0 ms to 5 ms tracked" in shown
