"""The process of the embedded broker: becomes mosquitto, or runs amqtt.

Started by :mod:`hilserver.service.broker` as ``python -m``; imports little, because all wait for the broker.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys

from hilserver.parent_process import die_with

HOST = "127.0.0.1"
PACKET_LIMIT = 16 << 20
"""Largest MQTT packet in bytes. The broker disconnects a client that sends a larger one; a server accepts none."""


def installed_mosquitto() -> str | None:
    """Its path; Debian installs it in /usr/sbin, which is not in an ordinary user's PATH."""
    return shutil.which("mosquitto", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin")))


def _main(program: str, port: str, parent: str, settings: str) -> None:
    die_with(int(parent))
    access = json.load(sys.stdin)
    if program == "mosquitto":
        _become_mosquitto(port, int(settings), access)
    else:
        _run_amqtt(port)


def _become_mosquitto(port: str, file: int, access: dict[str, str]) -> None:
    """Run mosquitto instead of this program. ``file``: an open one for its settings, which the parent can change."""
    program = installed_mosquitto()
    if program is None:
        sys.exit("mosquitto is not installed")
    settings = [
        f"listener {port} {HOST}",
        f"allow_anonymous {'false' if access else 'true'}",
        f"max_packet_size {PACKET_LIMIT}",
        "set_tcp_nodelay true",
        "persistence false",
        "connection_messages false",
        "log_dest stderr",
        "log_type error",
        "log_type warning",
        "log_timestamp false",
    ]
    if os.geteuid() == 0:
        settings.append("user root")  # started by root, mosquitto changes its user, which cancels die_with
    settings += [f"{key} {_file_in_memory(key, text)}" for key, text in access.items()]
    os.write(file, "\n".join((*settings, "")).encode())
    os.execv(program, [program, "-c", f"/proc/self/fd/{file}"])


def _file_in_memory(name: str, text: str) -> str:
    """A file for this process that nobody else can read, and that does not outlive it, however it ends."""
    file = os.memfd_create(name, 0)
    os.fchmod(file, 0o600)
    os.write(file, text.encode())
    return f"/proc/self/fd/{file}"


def _run_amqtt(port: str) -> None:
    import asyncio

    asyncio.run(_serve_amqtt(port))


async def _serve_amqtt(port: str) -> None:
    import asyncio
    import logging

    from amqtt.broker import Broker

    logging.getLogger("amqtt").setLevel(logging.CRITICAL)
    broker = Broker(
        {
            "listeners": {"default": {"type": "tcp", "bind": f"{HOST}:{port}"}},
            "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
        }
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await broker.start()
    await stop.wait()
    await broker.shutdown()


if __name__ == "__main__":
    _main(*sys.argv[1:])
