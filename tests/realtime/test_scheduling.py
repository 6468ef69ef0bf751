"""Real-time scheduling: what is asked for is had, or its lack is reported. Each case in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from hilserver.realtime.scheduling import Degradation

_PREPARE = """
import gc, json, os, resource, sys
from hilserver.realtime.scheduling import Scheduling, prepare

if "unprivileged" in sys.argv:
    resource.setrlimit(resource.RLIMIT_RTPRIO, (0, 0))
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
    if os.getuid() == 0:
        os.setuid(65534)
allowed = os.sched_getaffinity(0)
degradations = prepare(eval(sys.argv[1]))
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
print(json.dumps({
    "degradations": [vars(d) for d in degradations],
    "scheduler": os.sched_getscheduler(0),
    "priority": os.sched_getparam(0).sched_priority,
    "allowed": sorted(allowed),
    "cpus": sorted(os.sched_getaffinity(0)),
    "locked_kb": int(status["VmLck"].split()[0]),
    "slack_ns": int(open("/proc/self/timerslack_ns").read()),
    "gc": gc.isenabled(),
    "frozen": gc.get_freeze_count(),
}))
"""


def prepared(settings: str, *options: str) -> dict[str, Any]:
    """Calls ``prepare(settings)`` in a new process; what it reported and what the process then looks like."""
    done = subprocess.run(
        [sys.executable, "-c", _PREPARE, settings, *options], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def named(result: dict[str, Any], word: str) -> list[dict[str, str]]:
    return [entry for entry in result["degradations"] if word in entry["what"]]


def test_every_requested_resource_is_granted_or_reported() -> None:
    result = prepared("Scheduling(cpus=frozenset({min(os.sched_getaffinity(0))}))")
    got_fifo = (result["scheduler"], result["priority"]) == (os.SCHED_FIFO, 80)
    assert got_fifo != bool(named(result, "SCHED_FIFO"))
    assert (result["locked_kb"] > 0) != bool(named(result, "memory lock"))
    assert result["cpus"] == result["allowed"][:1]
    assert not named(result, "CPUs")
    assert not result["gc"]
    assert result["frozen"] > 0


def test_without_permission_each_lack_is_reported_with_cost_and_remedy() -> None:
    result = prepared("Scheduling()", "unprivileged")
    assert result["scheduler"] == os.SCHED_OTHER
    assert result["locked_kb"] == 0
    assert result["slack_ns"] == 1  # the best an ordinary process can do
    (fifo,) = named(result, "SCHED_FIFO")
    assert "priority 80" in fifo["what"]
    assert "not permitted" in fifo["why"]
    assert "LimitRTPRIO=80" in fifo["remedy"]
    (memory,) = named(result, "memory lock")
    assert "64 KiB" in memory["why"]
    assert "LimitMEMLOCK=infinity" in memory["remedy"]
    assert not named(result, "whole CPU")  # throttling concerns SCHED_FIFO only
    for entry in result["degradations"]:
        assert all(entry.values()), entry


def test_without_requests_nothing_changes() -> None:
    result = prepared("Scheduling(priority=None, lock_memory=False, freeze_gc=False)")
    assert result["scheduler"] == os.SCHED_OTHER
    assert result["locked_kb"] == 0
    assert result["cpus"] == result["allowed"]
    assert result["gc"]
    assert result["frozen"] == 0
    assert {entry["what"] for entry in result["degradations"]} <= {"real-time kernel"}


@pytest.mark.parametrize("cpus", ["{4095}", "{-1}", "{10**30}", "{min(os.sched_getaffinity(0)), 4095}", "()"])
def test_cpus_that_do_not_exist_are_reported(cpus: str) -> None:
    result = prepared(f"Scheduling(priority=None, lock_memory=False, cpus=frozenset({cpus}))")
    (entry,) = named(result, "CPUs")
    assert ", ".join(map(str, result["allowed"])) in entry["remedy"]


@pytest.mark.parametrize("priority", [0, 100, -1, 10**30])
def test_priority_out_of_range_is_reported(priority: int) -> None:
    result = prepared(f"Scheduling(priority={priority}, lock_memory=False)")
    (entry,) = named(result, "SCHED_FIFO")
    assert "1 ... 99" in entry["why"]


def test_ordinary_kernel_is_reported() -> None:
    result = prepared("Scheduling(priority=None, lock_memory=False)")
    version = os.uname().version
    assert bool(named(result, "real-time kernel")) == ("PREEMPT_RT" not in version), version


def test_a_degradation_reads_as_sentences() -> None:
    assert str(Degradation("memory lock", "not permitted", "Swapping stops the loop", "Raise the limit")) == (
        "memory lock: not permitted. Swapping stops the loop. Raise the limit."
    )
