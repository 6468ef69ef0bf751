"""A Debian in a folder, made with debootstrap; as such, or booted with a real systemd in namespaces of its own."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PATIENCE = 120.0
MIRROR = "http://deb.debian.org/debian"
BOOTABLE = "systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,openssh-server,procps,mosquitto,python3"
USER = "lab"
BOOT = """
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
for place in run tmp dev; do mount -t tmpfs -o mode=755 tmpfs $place; done
chmod 1777 tmp
for node in null zero full random urandom tty; do touch dev/$node; mount --bind /dev/$node dev/$node; done
mkdir dev/shm dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
touch dev/console
mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs sys/fs/cgroup
mkdir sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
mkdir -p old
pivot_root . old
umount -l /old
exec env -i container=namespaces PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=null
"""
"""What systemd expects of a container, and nothing of this computer but its network."""


def needs(program: str) -> pytest.MarkDecorator:
    """The test needs this program."""
    found = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is not None
    return pytest.mark.skipif(not found, reason=f"{program} is not installed (Debian: apt install {program})")


def run(*command: str | Path, within: float = 600.0) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=within, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    return done.stdout


def debootstrapped(folder: Path, packages: str) -> None:
    """A minimal Debian of this computer's release in ``folder``; skips the test where it can't be fetched."""
    (codename,) = re.findall("^VERSION_CODENAME=(.*)$", Path("/etc/os-release").read_text(), re.M)
    command = ["debootstrap", "--variant=minbase", f"--include={packages}", codename, str(folder), MIRROR]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        pytest.skip(f"debootstrap can't fetch a system: {done.stdout[-300:]}")


class BootedSystem:
    """A computer with systemd and sshd. ``pid``: of its systemd; ``ssh``: a configuration for the host ``rig-pc``."""

    def __init__(self, folder: Path, pid: int, ssh: Path) -> None:
        self.folder, self.pid, self.ssh = folder, pid, ssh

    def run(self, *command: str) -> str:
        """The output of a command there, as root."""
        return run("nsenter", "--target", str(self.pid), "--all", "--", *command, within=PATIENCE)

    def as_user(self, command: str) -> str:
        """The output of a command there, of a user who logs in; whatever its exit code."""
        done = subprocess.run(
            ["ssh", "-F", self.ssh, "rig-pc", command], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        return done.stdout.strip()


@contextlib.contextmanager
def booted(folder: Path) -> Iterator[BootedSystem]:
    """Boot the Debian in ``folder``/system; its sshd listens on a free port of the loopback."""
    system = folder / "system"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (system / "etc/ssh/sshd_config.d/port.conf").write_text(f"Port {port}\nListenAddress 127.0.0.1\n")
    ssh = _login(folder, system, port)
    namespaces = ("--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child")
    machine = subprocess.Popen(["unshare", *namespaces, "sh", "-c", BOOT, "boot", system], stdin=subprocess.DEVNULL)
    try:
        found = BootedSystem(system, _child_of(machine), ssh)
        _wait_for(found, port)
        yield found
    finally:
        machine.kill()
        machine.wait()
        run("chmod", "-R", "u+rwX", system)
        shutil.rmtree(system, ignore_errors=True)


def _login(folder: Path, system: Path, port: int) -> Path:
    """A user there who may log in with a key; the ssh configuration for that."""
    key, home = folder / "key", system / "home" / USER
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    run("chroot", system, "useradd", "--create-home", "--shell", "/bin/bash", USER)
    (home / ".ssh").mkdir(mode=0o700)
    shutil.copy(key.with_suffix(".pub"), home / ".ssh/authorized_keys")
    run("chroot", system, "chown", "-R", f"{USER}:", f"/home/{USER}")
    ssh = folder / "ssh_config"
    ssh.write_text(
        f"Host rig-pc\n  HostName 127.0.0.1\n  Port {port}\n  User {USER}\n  IdentityFile {key}\n"
        f"  IdentitiesOnly yes\n  StrictHostKeyChecking accept-new\n  UserKnownHostsFile {folder}/known_hosts\n"
    )
    return ssh


def _child_of(machine: subprocess.Popen[bytes]) -> int:
    """The process that is number 1 in the namespaces."""
    children = Path(f"/proc/{machine.pid}/task/{machine.pid}/children")
    deadline = time.monotonic() + PATIENCE
    while not (words := children.read_text().split()):
        assert machine.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return int(words[0])


def _wait_for(system: BootedSystem, port: int) -> None:
    """Wait until its systemd has started everything; skips the test where this computer permits no such thing."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and Path(f"/proc/{system.pid}").exists():
        with contextlib.suppress(AssertionError, OSError):
            if system.run("systemctl", "is-active", "ssh").strip() == "active":
                socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
                return
        time.sleep(0.2)
    if Path(f"/proc/{system.pid}").exists():
        raise AssertionError(f"the system in {system.folder} did not start")
    pytest.skip("systemd can't run in namespaces on this computer")
