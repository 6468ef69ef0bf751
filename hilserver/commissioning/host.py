"""Whether this computer is suitable for a real-time loop, from what the kernel reports below /proc and /sys.

Sources of what is checked: the kernel's own documentation (admin-guide/kernel-parameters, admin-guide/pm/cpuidle and
cpufreq, timers/no_hz, scheduler/sched-rt-group) and the Linux Foundation's real-time wiki (HOWTO build a cyclictest
system).
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from hilserver.realtime.scheduling import Degradation, Scheduling, check_kernel, check_throttling

OK: Final = "ok"
NOTE: Final = "note"
WARNING: Final = "warning"
ERROR: Final = "error"
State = Literal["ok", "note", "warning", "error"]
LONGEST_IDLE_EXIT = 10
"""Microseconds that the CPU may take to leave an idle state."""
GOOD_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page")
"""Clocks of x86-64 that are read in nanoseconds, without a system call."""
CAP_IPC_LOCK, CAP_SYS_NICE = 14, 23


@dataclass(frozen=True)
class Finding:
    """A check and its finding; unless it is ok, with the consequences and the command that fixes it.

    ``state``: "ok"; "note" (good to know, costs nothing on most rigs); "warning" (hilserver runs, but less well);
    "error" (it can't run, or can't do what the rig file asks for).
    """

    check: str
    state: State
    found: str
    cost: str = ""
    remedy: str = ""


class Host:
    """A machine as its kernel shows it; ``root`` is where its /proc and /sys lie."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def text(self, path: str) -> str | None:
        """A file's text without its end of line; None if there is none, or it can't be read."""
        try:
            return (self.root / path).read_text().strip()
        except (OSError, UnicodeDecodeError):
            return None

    def number(self, path: str) -> int | None:
        """A whole number; None if there is none."""
        text = self.text(path)
        return int(text) if text is not None and text.lstrip("-").isdigit() else None

    def cpus(self, path: str) -> frozenset[int]:
        """A list of CPUs, like 0-3,6; empty if there is none."""
        return cpu_list(self.text(path) or "")

    @property
    def online(self) -> frozenset[int]:
        """The CPUs that run."""
        return self.cpus("sys/devices/system/cpu/online")

    def of_cpu(self, cpu: int, path: str) -> str:
        """The path of a file that exists for each CPU."""
        return f"sys/devices/system/cpu/cpu{cpu}/{path}"

    def limit(self, name: str) -> float:
        """This process' soft limit of that name in /proc/self/limits; infinite for unlimited."""
        for line in (self.text("proc/self/limits") or "").splitlines():
            if line.startswith(name):
                soft = line[len(name) :].split()[0]
                return float("inf") if soft == "unlimited" else float(soft)
        return 0.0

    def has_capability(self, number: int) -> bool:
        """Whether this process has a capability (linux/capability.h)."""
        for line in (self.text("proc/self/status") or "").splitlines():
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> number & 1)
        return False


def cpu_list(text: str) -> frozenset[int]:
    """The kernel's way to write CPUs.

    >>> sorted(cpu_list("0-2,5"))
    [0, 1, 2, 5]
    >>> cpu_list("(null)")
    frozenset()
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if first.isdigit() and (not dash or last.isdigit()):
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def written(cpus: frozenset[int]) -> str:
    """CPUs for a sentence or a command: 0,2,3."""
    return ",".join(map(str, sorted(cpus)))


def check_host(host: Host, loop: Scheduling) -> Iterator[Finding]:
    """All findings that concern the timing of the loop: kernel, CPUs, clock, limits."""
    yield check_architecture()
    yield from _finding("kernel", "a PREEMPT_RT kernel", check_kernel(host.root), WARNING)
    yield check_virtual(host)
    yield check_choice(host, loop)
    if loop.cpus:
        yield check_isolation(host, loop.cpus)
        yield check_interrupts(host, loop.cpus)
    concerned = (loop.cpus or frozenset()) & host.online or host.online
    yield check_governor(host, concerned)
    yield check_idle(host, concerned)
    yield check_siblings(host, loop.cpus)
    yield check_clock_source(host)
    yield check_priority(host, loop)
    yield check_memory(host, loop)
    yield from _finding("throttling", "real-time processes may use all of a CPU", check_throttling(host.root), NOTE)


def check_architecture() -> Finding:
    """Shared memory without locks relies on x86-64."""
    if (machine := platform.machine()) in ("x86_64", "AMD64"):
        return Finding("processor", OK, machine)
    return Finding(
        "processor", ERROR, f"this is {machine}", "hilserver relies on the memory order of x86-64 and refuses others"
    )


def check_virtual(host: Host) -> Finding:
    """The timing of a virtual machine depends on its host."""
    flags = next((line for line in (host.text("proc/cpuinfo") or "").splitlines() if line.startswith("flags")), "")
    if "hypervisor" not in flags.split():
        return Finding("machine", OK, "not a virtual machine")
    ticks = (host.text("proc/stat") or "cpu").splitlines()[0].split()[1:]
    stolen = ""
    if ticks[7:]:
        stolen = f"; its host withheld {int(ticks[7]) / max(sum(map(int, ticks[:8])), 1):.1%} of the time"
    return Finding(
        "machine",
        WARNING,
        f"a virtual machine{stolen}",
        "From time to time the host withholds the CPU for milliseconds, regardless of the settings inside",
        "Run the rig on a dedicated computer; for trials raise loop.max_missed in the rig file",
    )


def check_choice(host: Host, loop: Scheduling) -> Finding:
    """The loop should have a dedicated CPU."""
    online, last = host.online, max(host.online, default=0)
    if len(online) < 2:
        cost = "Loop, recorder, supervisor and everything else share it"
        return Finding("CPUs", WARNING, "there is one CPU only", cost, "Use a computer with two or more")
    if not loop.cpus:
        found = f"loop.cpus is not set: the loop runs on any of {len(online)} CPUs"
        cost = "It shares them with all other processes and moves between them"
        return Finding("CPUs", WARNING, found, cost, f"In the rig file: [loop] cpus = [{last}]")
    if missing := loop.cpus - online:
        found = f"loop.cpus: CPU {written(missing)} is not available (online: {written(online)})"
        return Finding("CPUs", WARNING, found, "The loop runs on others", f"In the rig file: [loop] cpus = [{last}]")
    return Finding("CPUs", OK, f"the loop runs on CPU {written(loop.cpus)} of {len(online)}")


def check_isolation(host: Host, cpus: frozenset[int]) -> Finding:
    """Whether the loop's CPUs are kept free of other work, and of the kernel's own tick."""
    folder = "sys/devices/system/cpu"
    missing = [name for name in ("isolated", "nohz_full") if not cpus <= host.cpus(f"{folder}/{name}")]
    if not missing:
        return Finding("isolation", OK, f"CPU {written(cpus)} is kept free of other work and of the kernel's tick")
    words = {"isolated": "other processes may run on it", "nohz_full": "the kernel's own tick interrupts it"}
    options = " ".join(f"{option}={written(cpus)}" for option in ("isolcpus", "nohz_full", "rcu_nocbs"))
    return Finding(
        "isolation",
        WARNING if "isolated" in missing else NOTE,
        f"CPU {written(cpus)} is not isolated: {' and '.join(words[name] for name in missing)}",
        "Wake-ups are tens of µs late when the computer is busy",
        f"Add {options} to GRUB_CMDLINE_LINUX in /etc/default/grub, then: update-grub && reboot",
    )


def check_interrupts(host: Host, cpus: frozenset[int]) -> Finding:
    """Whether devices may interrupt the loop's CPUs."""
    folders = sorted((host.root / "proc/irq").glob("[0-9]*"))
    lists = {folder.name: host.cpus(f"proc/irq/{folder.name}/smp_affinity_list") for folder in folders}
    there = [number for number, allowed in lists.items() if allowed & cpus]
    if not there:
        return Finding("interrupts", OK, f"no device interrupts CPU {written(cpus)}")
    others = host.online - cpus
    return Finding(
        "interrupts",
        NOTE,
        f"{len(there)} of {len(lists)} interrupts may be handled by CPU {written(cpus)}",
        "A busy network or disk delays the loop by some tens of µs",
        f"Add irqaffinity={written(others)} to GRUB_CMDLINE_LINUX in /etc/default/grub, then: update-grub && reboot;"
        " and where irqbalance runs: systemctl disable --now irqbalance",
    )


def check_governor(host: Host, cpus: frozenset[int]) -> Finding:
    """Whether the CPUs keep their full frequency."""
    found = {cpu: host.text(host.of_cpu(cpu, "cpufreq/scaling_governor")) for cpu in cpus}
    slow = {cpu: governor for cpu, governor in found.items() if governor not in (None, "performance")}
    if not slow:
        scaled = any(governor is not None for governor in found.values())
        return Finding("frequency", OK, "governor performance" if scaled else "not scaled by this kernel")
    return Finding(
        "frequency",
        WARNING,
        f"CPU {written(frozenset(slow))}: governor {', '.join(sorted(set(map(str, slow.values()))))}",
        "Between ticks the CPU appears idle and slows down, so every tick may take several times as long",
        "cpupower frequency-set --governor performance   (Debian: linux-cpupower)",
    )


def check_idle(host: Host, cpus: frozenset[int]) -> Finding:
    """Whether a CPU may sleep so deeply that it wakes late."""
    deepest, name = 0, ""
    for cpu in cpus:
        for folder in (host.root / host.of_cpu(cpu, "cpuidle")).glob("state*"):
            state = host.of_cpu(cpu, f"cpuidle/{folder.name}")
            exit_time = host.number(f"{state}/latency") or 0
            if host.number(f"{state}/disable") == 0 and exit_time > deepest:
                deepest, name = exit_time, host.text(f"{state}/name") or folder.name
    if deepest <= LONGEST_IDLE_EXIT:
        return Finding("idle states", OK, f"left within {deepest} µs" if name else "none used by this kernel")
    return Finding(
        "idle states",
        WARNING,
        f"the CPU may sleep in {name}, which it leaves within {deepest} µs",
        f"Each wake-up may be up to {deepest} µs late",
        f"cpupower idle-set --disable-by-latency {LONGEST_IDLE_EXIT}   (until the next start; Debian: linux-cpupower)",
    )


def check_siblings(host: Host, cpus: frozenset[int] | None) -> Finding:
    """Whether another thread shares the core of the loop (SMT, Hyper-Threading)."""
    if host.number("sys/devices/system/cpu/smt/active") != 1:
        return Finding("SMT", OK, "no two CPUs share a core")
    isolated = host.cpus("sys/devices/system/cpu/isolated")
    siblings: frozenset[int] = frozenset()
    for cpu in cpus or ():
        siblings |= host.cpus(host.of_cpu(cpu, "topology/thread_siblings_list"))
    sharing = (siblings - (cpus or frozenset())) & host.online
    if cpus and sharing <= isolated:
        return Finding("SMT", OK, "the loop's core is kept free of other work")
    found = f"CPU {written(sharing)} shares the core of the loop's CPU" if sharing else "two CPUs share each core"
    return Finding(
        "SMT",
        WARNING,
        found,
        "While the other one is busy, a tick takes up to twice as long",
        "echo off > /sys/devices/system/cpu/smt/control   (permanently: nosmt on the kernel command line)",
    )


def check_clock_source(host: Host) -> Finding:
    """Whether the clock is read quickly: the loop does it ten times a tick."""
    source = host.text("sys/devices/system/clocksource/clocksource0/current_clocksource")
    if source is None or source in GOOD_CLOCKS:
        return Finding("clock source", OK, source or "unknown")
    return Finding(
        "clock source",
        WARNING,
        f"{source} instead of tsc",
        "Each reading of the clock takes about 1 µs instead of 20 ns, ten times per tick",
        "Find the reason in the kernel's log: dmesg | grep -i -e tsc -e clocksource; if it was only marked unstable,"
        " tsc=reliable on the kernel's command line",
    )


def check_priority(host: Host, loop: Scheduling) -> Finding:
    """Whether this user may use the loop's priority."""
    wanted = loop.priority or 0
    if host.has_capability(CAP_SYS_NICE) or host.limit("Max realtime priority") >= wanted:
        return Finding("priority", OK, f"this user may run at SCHED_FIFO {wanted}")
    return Finding(
        "priority",
        WARNING,
        f"this user may use real-time priorities up to {host.limit('Max realtime priority'):.0f} only, the loop needs"
        f" {wanted}",
        "Other processes delay the loop by milliseconds when the computer is busy",
        f'echo "$USER - rtprio {wanted}" | sudo tee -a /etc/security/limits.d/hilserver.conf   (then log in again; in'
        f" a systemd unit: LimitRTPRIO={wanted})",
    )


def check_memory(host: Host, loop: Scheduling) -> Finding:
    """Whether this user may keep the loop's memory in RAM."""
    limit = host.limit("Max locked memory")
    if not loop.lock_memory:
        return Finding(
            "memory lock",
            NOTE,
            "loop.lock_memory is off",
            "Access to a page that was dropped stops the loop for milliseconds",
        )
    if limit == float("inf") or host.has_capability(CAP_IPC_LOCK):
        return Finding("memory lock", OK, "this user may lock all memory")
    return Finding(
        "memory lock",
        WARNING,
        f"this user may lock {limit / 1024:.0f} KiB only",
        "Access to a page that was swapped out or dropped stops the loop for milliseconds",
        'echo "$USER - memlock unlimited" | sudo tee -a /etc/security/limits.d/hilserver.conf   (then log in again; in'
        " a systemd unit: LimitMEMLOCK=infinity)",
    )


def _finding(check: str, good: str, degradations: Iterator[Degradation], state: State) -> Iterator[Finding]:
    """What the loop itself would report as a degradation."""
    found = [Finding(check, state, d.why, d.cost, d.remedy) for d in degradations]
    yield from found or [Finding(check, OK, good)]
