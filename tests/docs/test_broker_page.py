"""What docs/mqtt.md says of a broker in the network, carried out from the certificates on."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import ssl
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mosquitto_lab
import pytest
from pages import (
    ARMED_WITHIN,
    DEMO,
    ROOT,
    Workplace,
    end,
    inline,
    marked,
    only,
    over,
    page_of,
    said_until,
    workplace,
)

from hilserver.protocol.commands import COMMANDS
from hilserver.service.broker import _free_port
from hilserver.toml import read_toml

pytestmark = pytest.mark.slow


@mosquitto_lab.NEEDS_MOSQUITTO
def test_broker_in_the_network(tmp_path: Path) -> None:
    """What the page says of it from the certificates on: the broker, a server that logs in, its users, the panel."""
    place = workplace(tmp_path, "net")
    rig, machine = place.rigs["lab"], tmp_path / "machine"
    for folder in ("etc/mosquitto/conf.d", "etc/hilserver/credentials", "root", "usr/share/hilserver"):
        (machine / folder).mkdir(parents=True)
    shutil.copytree(ROOT / "systemd/mosquitto", machine / "usr/share/hilserver/mosquitto")
    code, output = place.run(only("run: broker, as root").text)
    assert code == 0, output

    encrypted, plain = _free_port(), _free_port()
    here = (
        (" 8883", f" {encrypted} 127.0.0.1"),
        (" 1883 ", f" {plain} "),
        ("/etc/", f"{machine}/etc/"),
        ("/lab/", f"/{rig}/"),
    )
    for file in (machine / "etc/mosquitto/conf.d/hilserver.conf", machine / "etc/mosquitto/hilserver/acl"):
        text = file.read_text()
        for there, replacement in here:
            text = text.replace(there, replacement)
        file.write_text(text + ("user root\n" if file.suffix == ".conf" and os.geteuid() == 0 else ""))
    broker = place.start(f"mosquitto -c {machine}/etc/mosquitto/conf.d/hilserver.conf")
    try:
        said_until(broker, "running")
        with server_that_logs_in(place, encrypted, machine):
            users_log_in(place, encrypted, machine)
            commands_are_carried_out(place)
            panel_is_served(place, machine)
    finally:
        end(broker)


@contextlib.contextmanager
def server_that_logs_in(place: Workplace, port: int, machine: Path) -> Iterator[None]:
    """The server with the page's log-in, at this port."""
    fragment = next(block for block in marked("check: rig") if "hilserver-lab" in block.text)
    password = machine / "etc/hilserver/credentials/mqtt-lab"
    password.write_text("secret\n")
    password.chmod(0o600)
    settings = over(read_toml(place.folder / DEMO), tomllib.loads(fragment.text.replace("/etc/", f"{machine}/etc/")))
    settings = over(settings, {"name": place.rigs["lab"], "mqtt": {"host": "localhost", "port": port}})
    settings = over(settings, {"loop": {"reactions": 1, "playouts": 1}})
    file = place.folder / "config/rigs/lab.toml"
    file.write_text("".join(f"{key} = {inline(value)}\n" for key, value in settings.items()))
    server = place.start("hilserver run config/rigs/lab.toml")
    try:
        assert f"MQTT: localhost:{port}" in said_until(server, "Ctrl-C")
        yield
    finally:
        said = end(server)
    assert server.returncode == 0, said


def users_log_in(place: Workplace, port: int, machine: Path) -> None:
    """anna's log-in file, and the status by it."""
    script = only("run: broker, log-in").text.replace("lab-pc", "localhost").replace("8883", str(port))
    code, output = place.run(script.replace("/etc/", f"{machine}/etc/"), typed="secret\n")
    assert code == 0, output
    assert f"{place.rigs['lab']}  SAFE" in output
    for program in ("mosquitto_pub", "mosquitto_sub"):
        options = f"-h localhost\n-p {port}\n-u anna\n-P secret\n--cafile {machine}/etc/hilserver/ca.crt\n"
        (place.folder / ".config" / program).write_text(options)


def commands_are_carried_out(place: Workplace) -> None:
    """Every command there is, one after the other: the server carries each out and says so."""
    arm, *others = only("run: broker, commands").text.splitlines()
    armed = answers(place, [arm])
    deadline = time.monotonic() + ARMED_WITHIN
    while "Try again then." in str(armed) and time.monotonic() < deadline:
        armed = answers(place, [arm])
    carried_out = [*armed, *answers(place, others)]
    assert all(answer["ok"] for answer in carried_out), carried_out
    assert {answer["command"] for answer in carried_out} == set(COMMANDS)


def answers(place: Workplace, lines: Sequence[str]) -> list[dict[str, Any]]:
    """The server's answers to commands, one after the other."""
    hears = f"stdbuf -oL mosquitto_sub -t hil/{place.rigs['lab']}/answer -C {len(lines)} -W 60 -d"
    found = []
    with place.start(hears) as listening:  # ends by itself: a signal while it does can hang mosquitto_sub
        said_until(listening, "SUBACK")
        for line in lines:
            code, output = place.run(line)
            assert code == 0, output
            found.append(json.loads(said_until(listening, "{").splitlines()[-1]))
    return found


def panel_is_served(place: Workplace, machine: Path) -> None:
    """Over TLS, with the log-in page."""
    certificates = machine / "root/lab-certificates"
    for kind in ("crt", "key"):
        shutil.copy(certificates / f"broker.{kind}", place.folder / f"panel.{kind}")
    context = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
    served = page_of(place, only("run: broker, panel").text, context)
    assert f"<title>{place.rigs['lab']} · hilserver" in served
