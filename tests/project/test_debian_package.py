"""The Debian package of ``make deb``: lintian accepts it; in a fresh system it installs, runs, upgrades, is removed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import deb
import pytest
from debian_system import BOOTABLE, PATIENCE, booted, debootstrapped, needs, run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PACKAGES = sorted((ROOT / "dist").glob("hilserver_*.deb"))
SYSTEM = "python3,libstdc++6,mosquitto,procps,systemd-standalone-sysusers,systemd-standalone-tmpfiles"
"""What the package depends on; without systemd itself, which a folder can't run."""
needs_package = pytest.mark.skipif(not PACKAGES, reason="no package to examine in dist/: make deb")


@pytest.mark.parametrize(
    ("of", "sorted_as"), [("0.1.0.dev0", "0.1.0~dev0"), ("1.2.0rc1", "1.2.0~rc1"), ("1.2.0", "1.2.0")]
)
def test_a_preliminary_version_comes_before_its_release(
    of: str, sorted_as: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[project]\nversion = "{of}"\n')
    monkeypatch.setattr(deb, "HERE", tmp_path / "systemd")
    assert deb.version() == sorted_as


@needs_package
@needs("lintian")
def test_lintian_finds_no_error() -> None:
    done = subprocess.run(
        ["lintian", "--fail-on", "error", PACKAGES[-1]], capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, re.findall("^E: .*", done.stdout, re.M)) == (0, []), done.stdout + done.stderr


# --- in a fresh system -----------------------------------------------------------------------------------------------


class System:
    """A Debian in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *command: str, within: float = 600.0) -> str:
        """The output of a command in it."""
        return run("chroot", self.folder, *command, within=within)

    def install(self, package: Path) -> None:
        """Install or upgrade a package."""
        shutil.copy(package, self.folder / "tmp/hilserver.deb")
        self.run("dpkg", "--install", "/tmp/hilserver.deb")

    def files(self) -> set[str]:
        """All paths in it that belong to hilserver, or to its directories."""
        found = run("chroot", self.folder, "find", "/etc", "/usr", "/var", "-xdev", "-name", "*hilserver*")
        return {line for line in found.splitlines() if not line.startswith("/var/lib/dpkg")}


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    """A fresh one, with /proc and /dev/shm for as long as the test runs."""
    folder = tmp_path / "system"
    debootstrapped(folder, SYSTEM)
    mounts = [("proc", folder / "proc"), ("tmpfs", folder / "dev/shm"), ("tmpfs", folder / "run")]
    mounted = []
    try:
        for kind, place in mounts:
            place.mkdir(exist_ok=True)
            run("mount", "-t", kind, kind, place)
            mounted.append(place)
        yield System(folder)
    finally:
        for place in reversed(mounted):
            run("umount", place)


def newer(package: Path, folder: Path) -> Path:
    """The same package as a later version."""
    tree, file = folder / "tree", folder / "newer.deb"
    run("dpkg-deb", "--raw-extract", package, tree)
    control = tree / "DEBIAN/control"
    control.write_text(re.sub("^Version: .*$", "Version: 99", control.read_text(), flags=re.M))
    run("dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, file)
    shutil.rmtree(tree)
    return file


def runs_as_its_user(system: System) -> None:
    """Start the demo's rig in it, as the service does: with the user, and with the directories of tmpfiles.d."""
    user = ("setpriv", "--reuid=hilserver", "--regid=hilserver", "--clear-groups", "env", "--chdir=/var/lib/hilserver")
    places = (
        "CACHE_DIRECTORY=/tmp/cache",
        "STATE_DIRECTORY=/var/lib/hilserver",
        "RUNTIME_DIRECTORY=/run/hilserver/hilserver",
    )
    command = ("chroot", str(system.folder), *user, *places, "hilserver")
    server = subprocess.Popen([*command, "run", "/etc/hilserver/rig.toml"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        assert "runs at 1000 Hz" in server.stdout.readline()
        state = json.loads(run(*command, "status", "--json"))
        assert (state["online"], state["state"]["mode"]) == (True, "SAFE")
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(PATIENCE) == 0
        assert server.stdout is not None
        server.stdout.close()


@needs_package
@needs("debootstrap")
@pytest.mark.skipif(os.geteuid() != 0, reason="a system in a folder needs root")
def test_it_installs_runs_upgrades_and_is_removed(system: System, tmp_path: Path) -> None:
    before = system.files()
    system.install(PACKAGES[-1])
    assert system.run("hilserver", "--version").startswith("hilserver ")
    assert re.search("hilserver", system.run("getent", "passwd", "hilserver"))
    share, etc = "/usr/share/hilserver/config", "/etc/hilserver"
    system.run("cp", "-r", f"{share}/circuits", f"{share}/cycles", etc)
    system.run("sh", "-c", f"sed 's|\"\\.\\./|\"|' {share}/rigs/demo.toml >{etc}/rig.toml")
    system.run("hilserver", "check", f"{etc}/rig.toml")
    runs_as_its_user(system)

    began = time.time()
    system.install(newer(PACKAGES[-1], tmp_path))
    assert "Version: 99" in system.run("dpkg", "--status", "hilserver")
    runs_as_its_user(system)
    logs = list((system.folder / "var/lib/hilserver/logs").glob("*.arrow"))
    assert len(logs) == 2
    assert any(log.stat().st_mtime > began for log in logs)

    system.run("dpkg", "--remove", "hilserver")
    assert not [path for path in system.files() - before if path.startswith("/usr")]
    assert (system.folder / "etc/hilserver/rig.toml").exists(), "what people have written is kept"
    system.run("dpkg", "--purge", "hilserver")
    assert {path for path in system.files() - before if "hilserver" in path} <= {"/etc/hilserver", "/var/log/hilserver"}


@needs_package
@needs("debootstrap")
@pytest.mark.skipif(os.geteuid() != 0, reason="a system of its own needs root")
def test_systemd_starts_restarts_and_stops_it(tmp_path: Path) -> None:
    """A real systemd, in namespaces of its own: the unit's settings are accepted, and do what they are for."""
    debootstrapped(tmp_path / "system", f"{BOOTABLE},libstdc++6")
    System(tmp_path / "system").install(PACKAGES[-1])
    with booted(tmp_path) as system:

        def mode() -> str:
            state = json.loads(system.run("hilserver", "status", "--json"))
            assert state["online"]
            return str(state["state"]["mode"])

        share, etc = "/usr/share/hilserver/config", "/etc/hilserver"
        system.run("cp", "-r", f"{share}/circuits", f"{share}/cycles", etc)
        system.run("sh", "-c", f"sed 's|\"\\.\\./|\"|; s|= 1000 |= 5000 |' {share}/rigs/demo.toml >{etc}/rig.toml")
        system.run("sh", "-c", f"chgrp -R hilserver {etc}; chmod -R g+rX {etc}")
        system.run("systemctl", "start", "hilserver")
        assert mode() == "SAFE"
        for order in ("arm", "start"):
            system.run("hilserver", "send", order)
        assert mode() == "RUNNING"
        first = system.run("systemctl", "show", "--property=MainPID", "--value", "hilserver").strip()
        system.run("kill", "-9", first)
        deadline = time.monotonic() + PATIENCE
        while system.run("systemctl", "show", "--property=ActiveState,NRestarts", "hilserver").split() != [
            "NRestarts=1",
            "ActiveState=active",
        ]:
            assert time.monotonic() < deadline, system.run("journalctl", "--unit=hilserver")
            time.sleep(0.5)
        assert mode() == "SAFE", "never armed after a restart"
        system.run("systemctl", "stop", "hilserver")
        assert "Result=success" in system.run("systemctl", "show", "--property=Result", "hilserver")
        assert len(list((system.folder / "var/log/hilserver").glob("*.arrow"))) == 2
