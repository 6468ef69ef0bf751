"""The units and what goes with them, judged by systemd's own tools where they are installed."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SYSTEMD = ROOT / "systemd"
UNITS = ("hilserver.service", "hilserver@.service")
MAX_EXPOSED = 2.5


def needs(program: str) -> pytest.MarkDecorator:
    found = shutil.which(program) is not None
    return pytest.mark.skipif(not found, reason=f"{program} is not installed (Debian: apt install systemd)")


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=60, check=False
    )


class Unit:
    """A unit file: lists of values by section and key."""

    def __init__(self, path: Path) -> None:
        self.values: dict[str, list[str]] = {}
        for line in path.read_text().splitlines():
            if line and not line.startswith(("#", "[")):
                key, value = line.split("=", 1)
                self.values.setdefault(key, []).append(value)

    def __getitem__(self, key: str) -> str:
        (value,) = self.values[key]
        return value


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Units and examples as `make install-service` puts them, beside something to start."""
    prefix = tmp_path_factory.mktemp("installed") / "usr"
    done = run("make", "-C", ROOT, "install-service", f"PREFIX={prefix}", f"SYSCONFDIR={prefix}/etc")
    assert done.returncode == 0, done.stderr
    program = prefix / "bin" / "hilserver"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return prefix


def unit_of(installed: Path, name: str) -> Path:
    return installed / "lib" / "systemd" / "system" / name


# --- the units -------------------------------------------------------------------------------------------------------


@needs("systemd-analyze")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_accepts_the_units(installed: Path, name: str) -> None:
    done = run("systemd-analyze", "verify", "--recursive-errors=yes", "--man=no", unit_of(installed, name))
    assert (done.returncode, done.stderr) == (0, "")


@needs("systemd-analyze")
def test_systemd_does_complain_of_a_misspelt_key(installed: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "hilserver.service"
    wrong.write_text(unit_of(installed, "hilserver.service").read_text().replace("WatchdogSec=", "WatchdogSeconds="))
    assert run("systemd-analyze", "verify", "--recursive-errors=yes", "--man=no", wrong).returncode != 0


@needs("systemd-analyze")
@pytest.mark.parametrize("name", UNITS)
def test_the_units_are_closed(installed: Path, name: str) -> None:
    path = unit_of(installed, name)
    done = run("systemd-analyze", "security", "--offline=yes", f"--threshold={10 * MAX_EXPOSED:.0f}", path)
    exposure = re.search(r"Overall exposure level for \S+ ([\d.]+)", done.stdout)
    assert exposure is not None, done.stdout + done.stderr
    assert float(exposure[1]) <= MAX_EXPOSED
    assert done.returncode == 0


@needs("systemd-analyze")
@pytest.mark.parametrize("drop_in", sorted((SYSTEMD / "drop-ins").glob("*.conf")), ids=lambda path: path.stem)
def test_drop_ins_are_understood(installed: Path, drop_in: Path, tmp_path: Path) -> None:
    shutil.copy(unit_of(installed, "hilserver.service"), tmp_path)
    folder = tmp_path / "hilserver.service.d"
    folder.mkdir()
    shutil.copy(drop_in, folder)
    done = run("systemd-analyze", "verify", "--recursive-errors=yes", "--man=no", tmp_path / "hilserver.service")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", UNITS)
def test_real_time_and_the_compiler_are_left_alone(name: str) -> None:
    unit = Unit(SYSTEMD / name)
    assert unit["RestrictRealtime"] == unit["MemoryDenyWriteExecute"] == "no"
    assert (unit["LimitRTPRIO"], unit["LimitMEMLOCK"]) == ("99", "infinity")
    assert "@resources" not in " ".join(unit.values["SystemCallFilter"])  # sched_setscheduler
    assert "CPUSchedulingPolicy" not in unit.values  # would hold for every process of the service


@pytest.mark.parametrize("name", UNITS)
def test_the_watchdog_is_slower_than_all_other_safeguards(name: str) -> None:
    """A loop without a supervisor ends 2 s after its heartbeat's time-out (default: 1 s) and its ramp (2 s at most)."""
    unit = Unit(SYSTEMD / name)
    assert (unit["Type"], unit["NotifyAccess"]) == ("notify", "main")
    assert float(unit["WatchdogSec"].removesuffix("s")) > 1.0 + 2.0 + 2.0
    assert unit["WatchdogSignal"] == "SIGTERM"  # at which the loop ramps to null
    assert "KillMode" not in unit.values  # control-group: else a dead supervisor's loop is killed on the spot


@pytest.mark.parametrize("name", UNITS)
def test_the_service_restarts_after_a_failure(name: str) -> None:
    unit = Unit(SYSTEMD / name)
    assert unit["Restart"] == "on-failure"
    assert unit["StartLimitIntervalSec"] == "0"  # hilserver's own back-off takes care; systemd's would give up
    assert unit["RuntimeDirectoryPreserve"] == "restart"  # where it keeps count


def test_the_instances_unit_differs_in_names_only() -> None:
    one, many = ((SYSTEMD / name).read_text() for name in UNITS)
    renamed = {
        "# One rig: /etc/hilserver/rig.toml. For several rigs on one machine: hilserver@.service.": (
            "# Several rigs on one machine: hilserver@rig1 runs /etc/hilserver/rigs/rig1.toml. For one rig: "
            "hilserver.service."
        ),
        "systemctl edit hilserver": "systemctl edit hilserver@rig1",
        "systemctl status hilserver)": "systemctl status hilserver@rig1)",
        "Description=Virtual hydraulics on a real servo valve": (
            "Description=Virtual hydraulics on a real servo valve (rig %i)"
        ),
        "/etc/hilserver/rig.toml": "/etc/hilserver/rigs/%i.toml",
        "RuntimeDirectory=hilserver/hilserver": "RuntimeDirectory=hilserver/%i",
        "StateDirectory=hilserver": "StateDirectory=hilserver/%i",
        "LogsDirectory=hilserver": "LogsDirectory=hilserver/%i",
        "WorkingDirectory=/var/lib/hilserver": "WorkingDirectory=/var/lib/hilserver/%i",
    }
    for old, new in renamed.items():
        assert one.count(old) >= 1, old
        one = one.replace(old, new)
    assert one == many


# --- users, directories, layout --------------------------------------------------------------------------------------


@needs("systemd-sysusers")
@needs("systemd-tmpfiles")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make users, in whatever root directory")
def test_user_and_directories(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    for program, folder, options in (("sysusers", "sysusers.d", []), ("tmpfiles", "tmpfiles.d", ["--create"])):
        target = tmp_path / "usr" / "lib" / folder
        target.mkdir(parents=True)
        file = (installed / "lib" / folder / "hilserver.conf").read_text()
        (target / "hilserver.conf").write_text(file.replace(str(installed / "etc"), "/etc"))
        done = run(f"systemd-{program}", f"--root={tmp_path}", *options, "hilserver.conf")
        assert done.returncode == 0, done.stderr
    passwd, group = ((tmp_path / "etc" / name).read_text() for name in ("passwd", "group"))
    uid, gid, home, shell = re.search(r"^hilserver:x:(\d+):(\d+):[^:]*:([^:]*):(.*)$", passwd, re.M).groups()  # type: ignore[union-attr]
    assert (home, Path(shell).name) == ("/var/lib/hilserver", "nologin")
    assert re.search(r"^dialout:x:\d+:.*\bhilserver\b", group, re.M)
    for path, owner, mode in (
        ("etc/hilserver", 0, 0o750),
        ("etc/hilserver/credentials", 0, 0o750),
        ("var/log/hilserver", int(uid), 0o750),
        ("run/hilserver", int(uid), 0o750),
    ):
        status = (tmp_path / path).stat()
        assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (owner, int(gid), mode), path


def test_a_package_is_laid_out_below_its_destination(tmp_path: Path) -> None:
    done = run("make", "-C", ROOT, "install-service", "PREFIX=/usr", f"DESTDIR={tmp_path}")
    assert done.returncode == 0, done.stderr
    files = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert {
        "usr/lib/systemd/system/hilserver.service",
        "usr/lib/systemd/system/hilserver@.service",
        "usr/lib/sysusers.d/hilserver.conf",
        "usr/lib/tmpfiles.d/hilserver.conf",
        "usr/share/hilserver/mosquitto/acl",
        "usr/share/hilserver/mosquitto/hilserver.conf",
        "usr/share/hilserver/mosquitto/make-certificates",
        "usr/share/hilserver/drop-ins/cpu-affinity.conf",
        "usr/share/hilserver/config/rigs/demo.toml",
        "usr/share/doc/hilserver/service.md",
        "usr/share/doc/hilserver/SECURITY.md",
    } <= files
    assert all(file.startswith("usr/") for file in files)  # nothing in /etc that an update would overwrite
    for name in UNITS:
        text = (tmp_path / "usr/lib/systemd/system" / name).read_text()
        assert text == (SYSTEMD / name).read_text()  # as they stand in the repository: for PREFIX=/usr
    assert run("make", "-C", ROOT, "uninstall", "PREFIX=/usr", f"DESTDIR={tmp_path}").returncode == 0
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_units_name_the_prefix(installed: Path) -> None:
    unit = Unit(unit_of(installed, "hilserver@.service"))
    assert unit["ExecStart"] == f"{installed}/bin/hilserver run {installed}/etc/hilserver/rigs/%i.toml"
    assert f"{installed}/bin/hilserver safe {installed}/etc/hilserver/rigs/%i.toml" in unit["ExecStopPost"]


def test_unit_files_have_no_key_twice_that_may_stand_once() -> None:
    """systemd silently takes the last one."""
    lists = {"DeviceAllow", "SystemCallFilter"}
    for name in UNITS:
        values = Unit(SYSTEMD / name).values
        assert [key for key, given in values.items() if len(given) > 1 and key not in lists] == []
        configparser.ConfigParser(strict=False, interpolation=None).read(SYSTEMD / name)
