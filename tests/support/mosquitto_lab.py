"""A real mosquitto with the project's example configuration, its access list, and certificates made by its script."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hilserver.protocol.address import BrokerAddress
from hilserver.service.broker import _free_port

EXAMPLE = Path(__file__).parents[2] / "systemd" / "mosquitto"
PASSWORDS = {"anna": "operator's", "wall": "viewer's", "hilserver-lab": "server's", "hilserver-other": "another's"}
PROGRAM_PATH = os.environ.get("PATH", "") + ":/usr/sbin"
"""Where a broker may be: Debian has mosquitto among the programs of root."""
PROGRAMS = ("mosquitto", "mosquitto_passwd", "openssl")
MISSING = [name for name in PROGRAMS if shutil.which(name, path=PROGRAM_PATH) is None]
NEEDS_MOSQUITTO = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


def passwd(file: Path, **accounts: str) -> None:
    """A password file with these accounts, as mosquitto_passwd makes it."""
    for name, password in accounts.items():
        subprocess.run(["mosquitto_passwd", *([] if file.exists() else ["-c"]), "-b", file, name, password], check=True)
    file.chmod(0o600)


class Lab:
    """The example, in a folder, on free ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.plain_port = _free_port(), _free_port()
        subprocess.run(
            [EXAMPLE / "make-certificates", folder, "localhost", "127.0.0.1"], check=True, capture_output=True
        )
        for name, password in PASSWORDS.items():
            (folder / name).touch(0o600)
            (folder / name).write_text(f"{password}\n")
        passwd(folder / "passwords", **PASSWORDS)
        shutil.copy(EXAMPLE / "acl", folder / "acl")
        settings = (EXAMPLE / "hilserver.conf").read_text()
        for old, new in (
            ("/etc/mosquitto/hilserver", str(folder)),
            ("listener 1883 127.0.0.1", f"listener {self.plain_port} 127.0.0.1"),
            ("listener 8883", f"listener {self.port} 127.0.0.1"),
        ):
            assert old in settings
            settings = settings.replace(old, new)
        (folder / "mosquitto.conf").write_text(settings + ("user root\n" if os.geteuid() == 0 else ""))

    def address(self, account: str, **changes: object) -> BrokerAddress:
        """The broker over TLS, with this account."""
        login = {"user": account, "password_file": self.folder / account, "ca_file": self.folder / "ca.crt"}
        return BrokerAddress.model_validate({"host": "localhost", "port": self.port, **login, **changes})

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The broker while it runs."""
        program = shutil.which("mosquitto", path=PROGRAM_PATH)
        assert program is not None
        with (self.folder / "mosquitto.log").open("w") as log:
            broker = await asyncio.create_subprocess_exec(
                program, "-c", self.folder / "mosquitto.conf", stdout=log, stderr=log
            )
        try:
            async with asyncio.timeout(60):
                for port in (self.port, self.plain_port):
                    await self._listens(broker, port)
            yield
        finally:
            if broker.returncode is None:
                broker.kill()
            await broker.wait()

    async def _listens(self, broker: asyncio.subprocess.Process, port: int) -> None:
        while True:
            assert broker.returncode is None, (self.folder / "mosquitto.log").read_text()
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.02)
