"""A deployed rig as a service of the user's systemd, for which a script stands here (`fake_systemctl`)."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import fake_systemctl
import pytest

from hilserver.commissioning import on_target
from hilserver.commissioning.on_target import ActionRefused, Service, activate, environment, server_of, stop, unit
from hilserver.compiler.loading import all_files_in, standard_file
from hilserver.compiler.sources import SHIPPED

ROOT = Path(__file__).parents[2]
needs_verify = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of deployments on a target with a systemd for its user, and two releases of a rig."""
    files = standard_file().parent  # in the cache of this user
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("systemctl", Path(fake_systemctl.__file__).read_text()), ("loginctl", "raise SystemExit(1)")):
        (tools / name).write_text(f"#!{sys.executable}\n{text}")
        (tools / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    root = tmp_path / "hilserver"
    shutil.copytree(ROOT / "hilserver", root / "programs/p/hilserver", ignore=shutil.ignore_patterns("__pycache__"))
    built = root / "programs/p" / SHIPPED.relative_to(ROOT)
    built.mkdir(exist_ok=True)
    for name in ("fingerprint", *(path.name for path in all_files_in(files).values())):
        (built / name).symlink_to(files / name)
    for name in ("1", "2"):
        folder = root / f"rigs/{RIG}/releases/{name}"
        shutil.copytree(ROOT / "config", folder)
        file = folder / "rigs/demo.toml"
        file.write_text(file.read_text().replace('name = "demo"', f'name = "{RIG}"').replace("= 1000 ", "= 5000 "))
        about = {"file": "rigs/demo.toml", "program": "p", "version": "0.1.0"}
        (folder / "release.json").write_text(json.dumps(about))
    return root


RIG = "service_rig"


def place(target: Path) -> Path:
    return target / "rigs" / RIG


@pytest.mark.realtime
def test_a_service_runs_and_is_replaced_and_ends(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(RIG)
    assert activate(target, RIG, "1", as_service=True) == {"release": "1", "warning": on_target.ENDS_WITH_LOGIN}
    first = server_of(place(target))
    try:
        assert first is not None
        assert service.pid() == first
        assert service.file.with_suffix(".enabled").exists()
        activate(target, RIG, "2")  # it stays a service
        second = server_of(place(target))
        assert second not in (None, first)
        assert "releases/2/rigs/demo.toml" in service.file.read_text()
        assert on_target.described(place(target) / "previous")["name"] == "1"  # type: ignore[index]
    finally:
        stop(place(target))
    assert server_of(place(target)) is None
    assert not service.file.with_suffix(".enabled").exists()


@pytest.mark.realtime
def test_a_release_that_does_not_start_says_why(target: Path) -> None:
    rig = place(target) / "releases/1/rigs/demo.toml"
    rig.write_text(rig.read_text() + "nonsense = 1\n")
    with pytest.raises(ActionRefused, match=r"(?s)does not start:.*nonsense"):
        activate(target, RIG, "1", as_service=True)
    assert server_of(place(target)) is None
    assert not Service(RIG).file.with_suffix(".enabled").exists(), "systemd would try it again"


def test_without_a_systemd_nothing_is_changed(target: Path) -> None:
    (target.parent / "no-systemd").touch()
    with pytest.raises(ActionRefused, match=r"can't be reached \(Failed to connect to bus.*without --service"):
        activate(target, RIG, "1", as_service=True)
    assert not Service(RIG).is_there
    assert on_target.described(place(target) / "current") is None


@needs_verify
def test_systemd_accepts_the_unit(target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = place(target) / "releases/1"
    text = unit(place(target), environment(target, place(target), release), str(release / "rigs/demo.toml"))
    (tmp_path / "hilserver-x.service").write_text(text)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    done: Any = subprocess.run(
        ["systemd-analyze", "--user", "verify", "--recursive-errors=no", "--man=no", tmp_path / "hilserver-x.service"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
