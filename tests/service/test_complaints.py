"""The harness of the servers sees what must not be in their logs, and nothing else."""

from __future__ import annotations

from service_harness import complaints

LOG = """\
WARNING MQTT broker 127.0.0.1:1883: connection lost; trying again
ERROR device io: internal error in its driver:
Traceback (most recent call last):
  File "probe.py", line 116, in read
    raise ZeroDivisionError("a defect")
ZeroDivisionError: a defect
"""
LOST = """\
ERROR Task exception was never retrieved
future: <Task finished name='Task-7' coro=<main()> exception=ValueError('x')>
Traceback (most recent call last):
  File "hilserver/service/mqtt.py", line 1, in main
ValueError: x
"""


def test_only_expected_complaints_are_accepted() -> None:
    assert complaints(LOG) == ["Traceback (most recent call last):"]
    assert complaints(LOG, ["ZeroDivisionError: a defect"]) == []
    left = ["ERROR Task exception was never retrieved", "Traceback (most recent call last):"]
    assert complaints(LOG + LOST + LOG, ["ZeroDivisionError: a defect"]) == left
    assert complaints("RuntimeWarning: coroutine 'main' was never awaited") != []
    assert complaints("INFO everything is as usual") == []
