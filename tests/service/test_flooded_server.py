"""A real server under a flood of commands: who sends it is named, a trip gets through, the rig is not disturbed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mqtt_bench import FLOOD, NEEDS_MOSQUITTO
from service_harness import Server, eventually

from hilserver.client import connect

pytestmark = [pytest.mark.realtime, pytest.mark.slow, NEEDS_MOSQUITTO]


def test_the_sender_of_a_flood_is_named_and_a_trip_is_carried_out(tmp_path: Path) -> None:
    with Server(tmp_path) as server, connect(server.name, f"127.0.0.1:{server.port}") as client:
        client.arm()
        client.start()
        slowly = ("set_input", '{"input": "joystick", "value": 0.05}')  # never at its end stop
        flood = subprocess.Popen((sys.executable, "-c", FLOOD, str(server.port), server.name, *slowly))
        try:
            eventually(lambda: 'Client "a (flooding) client" sent ' in server.stderr)
            (line, *_) = [line for line in server.stderr.splitlines() if "(flooding)" in line]
            assert "commands were discarded unread" in line
            assert line.endswith("and was disconnected.")
            mode = client.wait(lambda _: True, 60.0).mode  # on a busy machine it may have lost the broker for a moment
            assert mode == "RUNNING", client.state.fault
            client.trip()
            assert flood.poll() is None, "it comes back, and goes on"
        finally:
            flood.kill()
            flood.wait()
        fault = client.wait(lambda state: state.mode == "FAULT").fault or ""
        assert fault.startswith("tripped by the operator")
