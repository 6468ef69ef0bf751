"""A server that drives a position-controlled actuator: operated over MQTT, recorded, replayed, reported, ended."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest
from frame_bench import frame_text, rig_with_both
from service_harness import Panel, Server, read_log, talk

from hilserver.client import connect
from hilserver.record.summary import summarise
from hilserver.report.document import Grid
from hilserver.report.run_report import run_report
from hilserver.sequences.check import PASSED
from hilserver.sequences.live import run_live
from hilserver.sequences.model import load_sequence
from hilserver.simulation.replay import replay_log
from hilserver.tick.codes import Mode
from hilserver.tick.hybrid.displacement import DisplacementStrategy

pytestmark = pytest.mark.realtime

SLOWLY = ("--speed", "0.2")
"""Of real time, on a machine that other tests share."""


SEQUENCE = """
length = "1 s"
[[step]]
at = "0.1 s"
send = "arm"
[[step]]
at = "0.2 s"
send = "start"
[[step]]
at = "0.3 s"
send = "strategy"
actuator = "table"
strategy = "adaptive"
[[expect]]
channel = "actuator.table.position"
at = "0.2 s"
min = "-1 mm"
max = "1 mm"
"""


async def operate(user: Panel) -> None:
    """Start the earthquake and change the strategy; what is wrong is refused in words, and the rig goes on."""
    description = await user.see("description")
    assert description["actuators"]["table"]["strategies"][-2:] == ["prediction", "manual"]
    await user.run_cycle()
    await user.see("state", lambda state: state["mode"] == "RUNNING")
    await user.do("strategy", actuator="table", strategy="adaptive")
    state = await user.see("state", lambda state: state["actuators"]["table"]["strategy"] == "adaptive")
    assert set(state["actuators"]["table"]["learned"]) == {
        "specimen_stiffness",
        "velocity_gain",
        "specimen_damping",
        "f90",
        "force_decay",
    }
    assert {"actuator.table.position", "actuator.table.command"} <= state["target"].keys() & state["actual"].keys()
    for wrong, reason in (
        ({"actuator": "table", "strategy": "pi_lead"}, '"pi_lead" is not offered by this actuator. Allowed: direct, '),
        ({"valve": "table", "strategy": "direct"}, "write actuator instead of valve"),
    ):
        answer = await user.command("strategy", **wrong)
        assert (answer["ok"], reason in answer["reason"]) == (False, True), answer
    answer = await user.command("jog", valve="table", command=0.1)
    assert "write actuator instead of valve" in answer["reason"]
    answer = await user.command("jog", actuator="table", command=0.1)
    assert "the bridge strategy is not manual" in answer["reason"]
    telemetry = await user.see("telemetry", start=len(user.seen))
    assert {"actuator.table.measured", "actuator.table.error", "actuator.table.f90"} <= telemetry["channels"].keys()


def test_a_run_of_the_frame_from_its_start_to_its_end(tmp_path: Path) -> None:
    with Server(tmp_path, text=frame_text(tmp_path), options=SLOWLY) as server:
        talk(server, operate)
        server.kill("supervisor", number=signal.SIGTERM)
        assert server.wait_exit() == 0
        assert server.leaves() == []
        log = server.logs[0]
        columns = read_log(log).columns
        running = columns["mode"] == Mode.RUNNING
        selected = columns["actuator.table.strategy"][running]
        assert {*selected.tolist()} == {DisplacementStrategy.prediction, DisplacementStrategy.adaptive}
        assert columns["mode"][-1] == Mode.SAFE
        assert columns["actuator.table.command"][-1] == 0.0
        replayed = replay_log(log, tolerance=0.0)
        assert (replayed.compared, replayed.differences) == (len(columns["tick"]), ())
        tables = {block.head[0]: block for block in run_report(log).blocks if isinstance(block, Grid)}
        (row,) = tables["actuator"].rows
        assert row[0] == "table"
        assert float(row[1]) == pytest.approx(np.count_nonzero(running) / 4096, rel=1e-3)
        assert f"{1e3 * summarise(log).actuators['table'].rms:.3g}" == row[3]
        events = [event for _, _, event in tables["time, s"].rows]
        assert "command strategy adaptive of actuator table" in events


def test_the_server_ends_when_the_actuator_is_at_rest(tmp_path: Path) -> None:
    """An end of RUNNING finds the actuator away from its safe displacement: the way there is in the log to its end."""
    text = frame_text(tmp_path).replace('max_error = "2 mm"', 'max_error = "2 mm"\nsafe = "1 mm"')
    with Server(tmp_path, text=text, options=SLOWLY) as server:

        async def start(user: Panel) -> None:
            for name in ("arm", "start"):
                await user.do(name)
            await user.see("telemetry", lambda t: abs(t["channels"]["actuator.table.command"][-1] or 1.0) < 1e-4)

        talk(server, start)
        server.kill("supervisor", number=signal.SIGTERM)
        assert server.wait_exit() == 0
        command = read_log(server.logs[0]).columns["actuator.table.command"]
        assert command[-1] == 1e-3
        assert np.abs(np.diff(command[-100:])).max() <= 20e-3 / 4096 * (1 + 1e-9)


def test_a_live_sequence_restores_the_strategy_of_an_actuator(tmp_path: Path) -> None:
    file = tmp_path / "sequence.toml"
    file.write_text(SEQUENCE)
    with (
        Server(tmp_path, text=frame_text(tmp_path), options=SLOWLY) as server,
        connect(server.name, f"127.0.0.1:{server.port}") as client,
    ):
        done = client._do(run_live(load_sequence(file), client._session))
        assert [verdict.outcome for verdict in done.verdicts] == [PASSED] * 4, done.verdicts
        client.wait(lambda state: state.mode == "SAFE" and state.actuators["table"].strategy == "prediction")
    assert {*read_log(server.logs[0]).columns["actuator.table.strategy"].tolist()} == {
        DisplacementStrategy.prediction,
        DisplacementStrategy.adaptive,
    }


def test_a_rig_with_valve_and_actuator_runs_trips_and_is_operated_from_python(tmp_path: Path) -> None:
    text = rig_with_both(tmp_path).read_text().replace('name = "both"', 'name = "{name}"')
    with Server(tmp_path, text=text, options=SLOWLY) as server:
        with connect(server.name, f"127.0.0.1:{server.port}") as client:
            client.arm()
            client.start()
            client.strategy("main", "inverse_static")
            client.actuator_strategy("table", "direct")
            state = client.wait(lambda state: state.actuators["table"].strategy == "direct")
            assert state.strategies == {"main": "inverse_static"}
            client.trip()
            client.wait(lambda state: state.mode == "FAULT")
            client.reset()
            client.wait(lambda state: state.mode == "SAFE")
        server.kill("supervisor", number=signal.SIGTERM)
        assert server.wait_exit() == 0
        assert replay_log(server.logs[0], tolerance=0.0).differences == ()
        summary = summarise(server.logs[0])
        assert ([valve.valve for valve in summary.valves], list(summary.actuators)) == (["main"], ["table"])
