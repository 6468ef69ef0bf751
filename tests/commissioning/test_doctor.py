"""hilserver doctor: on machines made of files, each thing that is wrong is found, with its cost and what mends it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import platform
import shlex
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from pages import only

from hilserver.cli import main
from hilserver.commissioning import doctor
from hilserver.commissioning import host as hosts
from hilserver.commissioning.doctor import (
    check_broker,
    check_cache,
    check_clock,
    check_disk,
    check_shared_memory,
    check_space,
    check_speed,
    clock_error,
    diagnose,
    doctor_figures,
    exit_code,
    writing_speed,
)
from hilserver.commissioning.host import Finding, Host, check_host
from hilserver.compiler import loading
from hilserver.realtime.scheduling import Scheduling
from hilserver.record.forecast import log_rate
from hilserver.rig.build import load_rig
from hilserver.rig.rig import Rig
from hilserver.service.broker import BrokerError, EmbeddedBroker

DEMO = Path(__file__).parents[2] / "config" / "rigs" / "demo.toml"
LOOP = Scheduling(80, frozenset({3}))
CPU = "sys/devices/system/cpu"
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max locked memory         {memory}             unlimited            bytes
Max nice priority         0                    0
Max realtime priority     {priority}           99
"""
GOOD = {
    "proc/sys/kernel/version": "#1 SMP PREEMPT_RT Debian 6.12.48-1 (2025-09-20)",
    "proc/sys/kernel/osrelease": "6.12.48+deb13-rt-amd64",
    "sys/kernel/realtime": "1",
    "proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu tsc nonstop_tsc\n",
    "proc/stat": "cpu  100 0 50 800 5 0 1 0 0 0\ncpu0 1 1 1\n",
    "proc/self/limits": LIMITS.format(memory="unlimited", priority="95"),
    "proc/self/status": "Name:\tpython\nCapEff:\t0000000000000000\n",
    "proc/sys/kernel/sched_rt_runtime_us": "-1",
    "proc/sys/kernel/sched_rt_period_us": "1000000",
    "proc/irq/0/smp_affinity_list": "0-2",
    "proc/irq/24/smp_affinity_list": "1",
    f"{CPU}/online": "0-3",
    f"{CPU}/isolated": "3",
    f"{CPU}/nohz_full": "3",
    f"{CPU}/smt/active": "0",
    **{f"{CPU}/cpu{n}/cpufreq/scaling_governor": "performance" for n in range(4)},
    **{f"{CPU}/cpu{n}/topology/thread_siblings_list": str(n) for n in range(4)},
    **{f"{CPU}/cpu{n}/cpuidle/state0/{key}": text for n in range(4) for key, text in
       {"name": "POLL", "latency": "0", "disable": "0"}.items()},
    **{f"{CPU}/cpu{n}/cpuidle/state1/{key}": text for n in range(4) for key, text in
       {"name": "C1", "latency": "2", "disable": "0"}.items()},
    **{f"{CPU}/cpu{n}/cpuidle/state2/{key}": text for n in range(4) for key, text in
       {"name": "C6", "latency": "133", "disable": "1"}.items()},
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
}  # fmt: skip
"""The files of a machine on which nothing is wrong: four CPUs, the last one for the loop."""


def machine(folder: Path, changes: dict[str, str | None]) -> Host:
    """The good machine, with some files changed; None: not there."""
    for name, text in {**GOOD, **changes}.items():
        if text is not None:
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")
    return Host(folder)


def wrong(host: Host, loop: Scheduling = LOOP) -> list[Finding]:
    return [finding for finding in check_host(host, loop) if finding.state != "ok"]


# --- the machine ------------------------------------------------------------------------------------------------------


def test_a_well_configured_machine_has_no_findings(tmp_path: Path) -> None:
    findings = list(check_host(machine(tmp_path, {}), LOOP))
    assert [finding for finding in findings if finding.state != "ok"] == []
    assert [finding.check for finding in findings] == [
        "processor",
        "kernel",
        "machine",
        "CPUs",
        "isolation",
        "interrupts",
        "frequency",
        "idle states",
        "SMT",
        "clock source",
        "priority",
        "memory lock",
        "throttling",
    ]
    assert all(finding.found and not finding.cost for finding in findings)


def test_the_page_shows_what_is_found(tmp_path: Path) -> None:
    block = only("tested: tests/commissioning/test_doctor.py::test_the_page_shows_what_is_found")
    slow = machine(tmp_path, {f"{CPU}/cpu3/cpufreq/scaling_governor": "powersave"})
    kernel, frequency = (f for f in check_host(slow, LOOP) if f.check == "kernel" or f.state != "ok")
    assert block.text.splitlines() == [
        f"ok      kernel: {kernel.found}",
        f"warning frequency: {frequency.found}",
        f"        effect: {frequency.cost}",
        f"        fix:    {frequency.remedy}",
        "...",
        "0 errors, 1 warning.",
    ]


ORDINARY = {
    "proc/sys/kernel/version": "#1 SMP PREEMPT_DYNAMIC Debian 6.12.48-1",
    "proc/sys/kernel/osrelease": "6.12.48+deb13-amd64",
    "sys/kernel/realtime": None,
}
WRONG: dict[str, tuple[dict[str, str | None], str, str, str, str]] = {
    "ordinary kernel": (ORDINARY, "kernel", "warning", "6.12.48+deb13-amd64 is not built", "linux-image-rt-amd64"),
    "isolation": ({f"{CPU}/isolated": ""}, "isolation", "warning", "other processes may run", "isolcpus=3 nohz_full=3"),
    "kernel's tick": ({f"{CPU}/nohz_full": "(null)"}, "isolation", "note", "own tick interrupts", "nohz_full=3"),
    "no nohz_full": ({f"{CPU}/nohz_full": None}, "isolation", "note", "own tick interrupts", "nohz_full=3"),
    "other isolated": ({f"{CPU}/isolated": "1-2"}, "isolation", "warning", "CPU 3 is not isolated", "rcu_nocbs=3"),
    "interrupts": (
        {"proc/irq/24/smp_affinity_list": "0-3"}, "interrupts", "note", "1 of 2 interrupts", "irqaffinity=0,1,2",
    ),
    "powersave": (
        {f"{CPU}/cpu3/cpufreq/scaling_governor": "powersave"}, "frequency", "warning", "CPU 3: governor powersave",
        "cpupower frequency-set --governor performance",
    ),
    "deep sleep": (
        {f"{CPU}/cpu3/cpuidle/state2/disable": "0"}, "idle states", "warning", "C6, which it leaves within 133 µs",
        "cpupower idle-set --disable-by-latency 10",
    ),
    "Hyper-Threading": (
        {f"{CPU}/smt/active": "1", f"{CPU}/cpu3/topology/thread_siblings_list": "1,3"}, "SMT", "warning",
        "CPU 1 shares the core", "echo off > /sys/devices/system/cpu/smt/control",
    ),
    "virtual machine": (
        {"proc/cpuinfo": "flags\t\t: fpu hypervisor tsc\n", "proc/stat": "cpu  100 0 50 800 0 0 0 50 0 0\n"},
        "machine", "warning", "its host withheld 5.0% of the time", "a dedicated computer",
    ),
    "slow clock": (
        {"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"}, "clock source", "warning",
        "hpet instead of tsc", "dmesg",
    ),
    "no priority": (
        {"proc/self/limits": LIMITS.format(memory="unlimited", priority="50")}, "priority", "warning", "up to 50 only",
        'echo "$USER - rtprio 80" | sudo tee -a /etc/security/limits.d/hilserver.conf',
    ),
    "no memory": (
        {"proc/self/limits": LIMITS.format(memory="8388608", priority="95")}, "memory lock", "warning", "8192 KiB only",
        "memlock unlimited",
    ),
    "throttling": (
        {"proc/sys/kernel/sched_rt_runtime_us": "950000"}, "throttling", "note", "keeps 5 %",
        "sysctl kernel.sched_rt_runtime_us=-1",
    ),
    "no CPU 3": ({f"{CPU}/online": "0-2"}, "CPUs", "warning", "CPU 3 is not available (online: 0,1,2)", "cpus = [2]"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_each_problem_is_found_separately_with_its_remedy(name: str, tmp_path: Path) -> None:
    changes, check, state, found, remedy = WRONG[name]
    (finding,) = wrong(machine(tmp_path, changes))
    assert (finding.check, finding.state) == (check, state)
    assert found in finding.found
    assert remedy in finding.remedy
    assert finding.cost


@pytest.mark.parametrize("capability", [0, hosts.CAP_SYS_NICE])
def test_capabilities_count_as_limits_do(capability: int, tmp_path: Path) -> None:
    """Root, and a service with AmbientCapabilities=CAP_SYS_NICE."""
    both = f"CapEff:\t{1 << hosts.CAP_IPC_LOCK | 1 << capability:016x}"
    limits = LIMITS.format(memory="65536", priority="0")
    found = wrong(machine(tmp_path, {"proc/self/limits": limits, "proc/self/status": both}))
    assert [finding.check for finding in found] == ([] if capability else ["priority"])


def test_idle_sibling_cpus_are_no_problem(tmp_path: Path) -> None:
    changes = {
        f"{CPU}/smt/active": "1",
        f"{CPU}/isolated": "1,3",
        f"{CPU}/nohz_full": "1,3",
        f"{CPU}/cpu3/topology/thread_siblings_list": "1,3",
    }
    assert wrong(machine(tmp_path, dict(changes))) == []


def test_a_loop_without_its_own_cpus_is_advised_to_choose_some(tmp_path: Path) -> None:
    host = machine(tmp_path, {f"{CPU}/smt/active": "1", f"{CPU}/cpu0/cpufreq/scaling_governor": "schedutil"})
    found = {finding.check: finding for finding in wrong(host, Scheduling())}
    assert set(found) == {"CPUs", "SMT", "frequency"}
    assert "any of 4 CPUs" in found["CPUs"].found
    assert found["CPUs"].remedy == "In the rig file: [loop] cpus = [3]"
    assert "two CPUs share each core" in found["SMT"].found
    assert found["frequency"].found == "CPU 0: governor schedutil"


def test_one_cpu_is_too_few(tmp_path: Path) -> None:
    found = wrong(machine(tmp_path, {f"{CPU}/online": "0"}), Scheduling())
    assert [finding.check for finding in found] == ["CPUs"]
    assert "one CPU only" in found[0].found


def test_a_kernel_without_frequencies_and_idle_states_is_fine(tmp_path: Path) -> None:
    """As in many virtual machines."""
    absent = {name: None for name in GOOD if "cpufreq" in name or "cpuidle" in name}
    findings = {finding.check: finding for finding in check_host(machine(tmp_path, {**absent}), LOOP)}
    assert findings["frequency"].found == "not scaled by this kernel"
    assert findings["idle states"].found == "none used by this kernel"
    assert {finding.state for finding in findings.values()} == {"ok"}


def test_a_loop_that_does_not_lock_its_memory_is_noted(tmp_path: Path) -> None:
    (finding,) = wrong(machine(tmp_path, {}), dataclasses.replace(LOOP, lock_memory=False))
    assert (finding.check, finding.state) == ("memory lock", "note")


def test_other_processors_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    (finding,) = wrong(machine(tmp_path, {}))
    assert (finding.state, finding.found) == ("error", "this is aarch64")


def test_missing_files_in_proc_are_tolerated(tmp_path: Path) -> None:
    """What can't be read is not known to be good."""
    found = {finding.check for finding in wrong(Host(tmp_path))}
    assert {"kernel", "priority", "memory lock"} <= found


def test_this_machine_is_examined_as_it_is() -> None:
    findings = {finding.check: finding for finding in check_host(Host(), Scheduling())}
    realtime = Path("/sys/kernel/realtime").exists() or "PREEMPT_RT" in os.uname().version
    assert (findings["kernel"].state == "ok") == realtime
    assert str(len(Host().online)) in findings["CPUs"].found or len(Host().online) == 1


# --- clock, cache, shared memory --------------------------------------------------------------------------------------


def test_clock() -> None:
    assert check_clock(0.012).found == "synchronised, to 12 ms at most"
    unknown = check_clock(None)
    assert (unknown.state, unknown.remedy) == ("warning", "apt-get install chrony   (or: timedatectl set-ntp true)")
    error = clock_error()
    assert error is None or 0.0 <= error < 3600.0


@pytest.fixture(scope="module")
def rig() -> Rig:
    return load_rig(DEMO)


def test_cache_folder(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path / "new" / "cache"))
    monkeypatch.setattr(loading, "SHIPPED", tmp_path / "nothing")
    assert check_cache(None).state == "ok"
    fresh = check_cache(rig)
    assert (fresh.state, fresh.remedy) == ("note", f"hilserver run {rig.file}")
    assert not [path for path in (tmp_path / "new").rglob("*") if path.is_file()], "nothing is compiled to say so"
    (tmp_path / "file").touch()
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path / "file"))
    taken = check_cache(rig)
    assert taken.state == "warning"
    assert f"mkdir -p {tmp_path / 'file'}" in taken.remedy


def test_shared_memory(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_shared_memory(rig, tmp_path).state == "ok"
    usage = shutil_usage(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    full = check_shared_memory(rig, tmp_path)
    assert (full.state, full.remedy) == ("error", f"mount -o remount,size=512M {tmp_path}")
    assert "1 MB free" in full.found


def shutil_usage(free: int) -> Any:
    return type("Usage", (), {"free": free})()


# --- broker -----------------------------------------------------------------------------------------------------------


def with_broker(rig: Rig, **settings: Any) -> Rig:
    mqtt = rig.settings.mqtt.model_copy(update={"embedded": False, "host": "127.0.0.1", **settings})
    return dataclasses.replace(rig, settings=rig.settings.model_copy(update={"mqtt": mqtt}))


def test_a_reachable_broker_is_accepted(rig: Rig) -> None:
    async def ask() -> Finding:
        async with EmbeddedBroker() as broker:
            return await asyncio.to_thread(check_broker, with_broker(rig, port=broker.port))

    finding = asyncio.run(ask())
    assert finding.state == "ok", finding


def test_an_unreachable_broker_is_reported(rig: Rig, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        missing = check_broker(with_broker(rig, port=free.getsockname()[1]))
    assert (missing.state, missing.check) == ("error", "broker")
    assert "systemctl status mosquitto" in missing.remedy
    password = check_broker(with_broker(rig, user="x", password_file=tmp_path / "none", port=1))
    assert password.state == "error"
    assert "none" in password.found


def test_a_broker_in_the_network_needs_tls_and_a_log_in(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def lets_in(_: object) -> None:
        return None

    monkeypatch.setattr(doctor, "_refusal", lets_in)
    open_to_all = check_broker(with_broker(rig, host="broker.example", port=1883))
    assert open_to_all.state == "warning"
    assert "no TLS" in open_to_all.found
    assert "no login" in open_to_all.found
    assert "ca_file" in open_to_all.remedy


def test_the_embedded_broker_needs_a_program(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_broker(rig).state == "ok"

    def none() -> None:
        raise BrokerError("no MQTT broker is installed here.")

    monkeypatch.setattr(doctor, "find_program", none)
    assert check_broker(rig) == Finding(
        "broker", "error", "no MQTT broker is installed here.", "The run does not start", "apt-get install mosquitto"
    )


# --- disk -------------------------------------------------------------------------------------------------------------


def test_a_folder_that_can_not_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "logs"):
        (finding,) = check_disk(folder, 1e6)
        assert (finding.state, finding.cost) == ("error", "The run is not recorded")
        assert f"mkdir -p {folder}" in finding.remedy


def test_the_disk_test_leaves_no_file(tmp_path: Path) -> None:
    found = {finding.check: finding for finding in check_disk(tmp_path / "logs", 1e6)}
    assert "GB per hour" in found["disk space"].found
    assert "MB/s" in found["disk speed"].found
    assert list(tmp_path.iterdir()) == []
    assert writing_speed(tmp_path) > 0.0


@pytest.mark.parametrize(("hours", "state"), [(48.0, "ok"), (5.0, "warning"), (0.1, "error")])
def test_disk_space_counts_in_hours_of_log(hours: float, state: str, tmp_path: Path) -> None:
    finding = check_space(tmp_path, free=hours * 3600 * 2e6, rate=2e6)
    assert finding.state == state
    assert f"7.2 GB per hour: enough for {hours:.1f} h" in finding.found
    less = check_space(tmp_path, free=hours * 3600 * 2e6 + 500e6, rate=2e6, kept_free=500e6)
    assert (less.state, finding.found.partition("the log")[2]) == (state, less.found.partition("the log")[2])
    assert "0.5 GB are kept free" in less.found


def test_disk_speed_has_a_margin() -> None:
    assert check_speed(100e6, 20e6).state == "ok"
    slow = check_speed(70e6, 20e6)
    assert (slow.state, slow.found) == ("warning", "70 MB/s, forced to disk; the log needs 20.0 MB/s")
    assert check_speed(1.0, 0.0).state == "ok"


def test_rate_of_the_log_is_that_of_its_rows(rig: Rig) -> None:
    columns = len(rig.layout.names) + len(rig.packed.names)
    assert log_rate(rig) == 8 * columns * 1000.0


# --- the command ------------------------------------------------------------------------------------------------------


def test_worst_finding_is_the_exit_code() -> None:
    findings = [Finding(state, state, "") for state in ("ok", "note", "warning", "error")]
    assert [exit_code(findings[:n]) for n in range(5)] == [0, 0, 0, 1, 2]


def test_whole_diagnosis_of_a_rig(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = rig.settings.recording.model_copy(update={"folder": str(tmp_path / "logs")})
    here = dataclasses.replace(rig, settings=rig.settings.model_copy(update={"recording": recording}))
    findings = diagnose(here, machine(tmp_path / "good", {}), lambda: 0.001)
    checks = [finding.check for finding in findings]
    assert checks[-6:] == ["clock", "cache", "shared memory", "broker", "disk space", "disk speed"]
    bad = [finding for finding in findings if finding.state in ("warning", "error")]
    assert {finding.check for finding in bad} <= {"CPUs", "disk space", "disk speed"}  # the demo's loop has no CPUs
    data = json.loads(json.dumps(doctor_figures(findings)))
    assert data["exit_code"] == exit_code(findings)
    assert [finding["check"] for finding in data["findings"]] == checks


def test_command_prints_text_or_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = [
        Finding("kernel", "ok", "a PREEMPT_RT kernel"),
        Finding("clock", "warning", "not synchronised", "Times are off", shlex.join(["apt-get", "install", "chrony"])),
    ]
    monkeypatch.setattr(doctor, "diagnose", lambda rig: findings)
    outputs = []
    for options in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", ["hilserver", "doctor", str(DEMO), *options])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 1
        outputs.append(capsys.readouterr().out)
    assert outputs[0].splitlines() == [
        "ok      kernel: a PREEMPT_RT kernel",
        "warning clock: not synchronised",
        "        effect: Times are off",
        "        fix:    apt-get install chrony",
        "0 errors, 1 warning.",
    ]
    assert [finding["state"] for finding in json.loads(outputs[1])["findings"]] == ["ok", "warning"]
