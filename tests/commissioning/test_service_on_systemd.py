"""A deployed rig as a service of a user: with a real systemd, in a computer of its own made of namespaces."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from debian_system import BOOTABLE, PATIENCE, USER, booted, debootstrapped, needs

from hilserver.commissioning.deployment import Target, deploy, mode_of, state_of

pytestmark = [pytest.mark.realtime, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@needs("debootstrap")
@needs("ssh")
@pytest.mark.skipif(os.geteuid() != 0, reason="a system of its own needs root")
def test_it_runs_without_a_login_and_comes_back(tmp_path: Path) -> None:
    """After a crash, and with the computer; the next release takes its place; stopped, it does not come back."""
    debootstrapped(tmp_path / "system", BOOTABLE)
    shutil.copytree(ROOT / "config", tmp_path / "config")
    rig = tmp_path / "config/rigs/demo.toml"
    rig.write_text(rig.read_text().replace("= 1000 ", "= 5000 ") + "\n[arming]\nvirtual_commissioning = false\n")
    with booted(tmp_path) as system:
        target, said, unit = Target("rig-pc", "demo", system.ssh), list[str](), "hilserver-demo"

        def until_active() -> None:
            deadline = time.monotonic() + PATIENCE
            while system.as_user(f"systemctl --user is-active {unit}") != "active":
                assert time.monotonic() < deadline, system.as_user(f"journalctl --user --unit={unit}")
                time.sleep(0.5)

        assert deploy(rig, target, service=True, tell=said.append) == "1"
        assert [text for text in said if "logs out" in text], "this user may not let it stay without a login"
        said.clear()
        system.run("loginctl", "enable-linger", USER)
        assert deploy(rig, target, service=True, tell=said.append) == "2"
        assert not [text for text in said if "logs out" in text]
        assert system.as_user(f"systemctl --user is-enabled {unit}") == "enabled"
        assert mode_of(target) == "SAFE"

        system.as_user(f"kill -9 $(systemctl --user show --property=MainPID --value {unit})")
        time.sleep(0.5)
        until_active()
        assert system.as_user(f"systemctl --user show --property=NRestarts --value {unit}") == "1"
        assert mode_of(target) == "SAFE"

        assert deploy(rig, target) == "3"
        until_active()
        uid = system.as_user("id -u")
        system.run("systemctl", "restart", f"user@{uid}")  # what happens at the start of the computer
        until_active()
        assert state_of(target)["release"]["name"] == "3"

        target.ask("stop")
        assert system.as_user(f"systemctl --user is-active {unit}") == "inactive"
        assert system.as_user(f"systemctl --user is-enabled {unit}") == "disabled"
