"""What a driver is tested with: a bench, a session with its driver, a process that drives it, a rig around it."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import driving_child
import numpy as np
import pytest

import hilserver.driver
from hilserver.circuit.library import standard_library
from hilserver.driver import Driver
from hilserver.installed import installed
from hilserver.rig.build import assemble, load_rig
from hilserver.rig.rig import Rig

ROOT = Path(__file__).parents[2]
NAME = "io"
"""The device's name in the rig file."""
HANG = 5.0
"""Seconds beyond its stated time-out after which a call counts as hanging; generous, as machines are shared."""


class Bench(ABC):
    """A fake device that works, what it measures, what it got, and its cable. Made plugged in and switched on."""

    driver: ClassVar[type[Driver]]
    settings: Mapping[str, Any]
    """As in ``[devices.io]``, without ``driver``; with at least two inputs and two outputs."""
    input_span: Mapping[str, tuple[float, float]]
    """Two raw values of each input that can be told apart."""
    output_span: Mapping[str, tuple[float, float]]
    """Two raw values of each output, neither being the safe one where there are more than two."""
    safe: Mapping[str, float]
    """Raw safe value of each output."""
    timeout: float
    """Seconds that the settings allow a read or a write to take."""
    patience: float = 5.0
    """Seconds within which a value must have come through and a connection must have mended."""

    def make(self, inputs: Sequence[str], outputs: Sequence[str]) -> Driver:
        """A driver with these channels in this order, not opened."""
        return self.driver(NAME, self.driver.Config.model_validate(self.settings), inputs, outputs)

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self.input_span)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self.output_span)

    @abstractmethod
    def measure(self, values: Mapping[str, float]) -> None:
        """Let the device's inputs have these raw values from now on."""

    @abstractmethod
    def written(self) -> list[tuple[str, float]]:
        """Every raw value that arrived at an output so far, in order."""


class HardwareBench(Bench):
    """A device with a cable, which other processes can reach too."""

    environment: Mapping[str, str] = MappingProxyType({})
    """Variables with which a process finds the device."""

    @abstractmethod
    def unplug(self) -> None:
        """Take the device away: from now on nothing answers."""

    @abstractmethod
    def plug(self) -> None:
        """Bring it back, as after a loss of power: it remembers no output."""


class AnyBench(Bench):
    """For a session with a device that a test has in its own hand."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout

    def measure(self, values: Mapping[str, float]) -> None:
        """The test does that."""

    def written(self) -> list[tuple[str, float]]:
        return []


class Session:
    """An opened driver as the loop uses it: arrays in the order of its channels."""

    def __init__(self, driver: Driver, bench: Bench) -> None:
        self.driver, self.bench = driver, bench
        self.begin = len(bench.written())
        self.values, self.ages = np.full(len(driver.inputs), np.nan), np.full(len(driver.inputs), np.inf)

    def read(self) -> dict[str, float]:
        """Raw values by name; the driver may leave no element as it was."""
        self.values[:], self.ages[:] = 1e33, -1.0
        within(self.bench.timeout, lambda: self.driver.read(self.values, self.ages))
        assert not (self.values == 1e33).any(), "read left a value unfilled"
        assert (self.ages >= 0.0).all(), f"ages are seconds: {self.ages}"
        return dict(zip(self.driver.inputs, self.values.tolist(), strict=True))

    def write(self, values: Mapping[str, float]) -> None:
        command = np.array([values[name] for name in self.driver.outputs], dtype=np.float64)
        before = command.copy()
        within(self.bench.timeout, lambda: self.driver.write(command))
        assert (command == before).all(), "write changed the loop's array"

    def reads(self, expected: Mapping[str, float]) -> None:
        """Fails unless these values are read within the bench's patience."""
        self._until(lambda: self.read() == pytest.approx(expected, rel=1e-6, abs=1e-9), lambda: self.values.tolist())

    def reads_something(self) -> None:
        """Fails unless every input has a value within the bench's patience."""
        self._until(lambda: not any(map(math.isnan, self.read().values())), lambda: self.values.tolist())

    def sees_nothing(self) -> None:
        """Fails unless all values are missing within the bench's patience."""
        self._until(lambda: all(map(math.isnan, self.read().values())), lambda: self.values.tolist())

    def arrives(self, values: Mapping[str, float], since: int | None = None) -> None:
        """Fails unless, written again and again, these and no others come to the device as the last.

        ``since``: how many values had come before those that count; without it, those before this session.
        """
        since = self.begin if since is None else since

        def arrived() -> bool:
            self.write(values)
            return last(self.bench.written()[since:]) == pytest.approx(values, rel=1e-6, abs=1e-9)

        self._until(arrived, lambda: last(self.bench.written()))

    def _until(self, reached: Callable[[], bool], seen: Callable[[], object]) -> None:
        deadline = time.monotonic() + self.bench.patience
        while not reached():
            assert time.monotonic() < deadline, f"still {seen()}; {self.driver.errors}, {self.driver.last_error}"
            time.sleep(0.002)


def within(timeout: float, call: Callable[[], None]) -> None:
    """Fails where a call takes much longer than it may."""
    begin = time.monotonic()
    call()
    assert time.monotonic() - begin < timeout + HANG, "blocked longer than its time-out"


def last(written: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The last value of each output."""
    return dict(written)


def patterns(spans: Mapping[str, tuple[float, float]]) -> list[dict[str, float]]:
    """All values low, then one after the other high: no two channels can be exchanged without being seen."""
    low = {name: span[0] for name, span in spans.items()}
    return [low, *({**low, name: span[1]} for name, span in spans.items())]


@contextmanager
def driving_process(bench: HardwareBench) -> Iterator[subprocess.Popen[str]]:
    """A process that reads and writes the device as the loop does; its command has arrived. Killed at the end."""
    command, begin = patterns(bench.output_span)[0], len(bench.written())
    driver = f"{bench.driver.__module__}:{bench.driver.__qualname__}"
    task = json.dumps([driver, dict(bench.settings), bench.inputs, command])
    environment = {**os.environ, **bench.environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, driving_child.__file__, NAME, task],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    )
    try:
        deadline = time.monotonic() + 30.0
        while last(bench.written()[begin:]) != pytest.approx(command):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, f"the command did not arrive, but {last(bench.written()[begin:])}"
            time.sleep(0.01)
        yield process
    finally:
        process.kill()
        process.communicate()


UNDER_TEST = "under_test"
"""The name under which the driver is offered, whether its package is installed or not."""


def offer(driver: type[Driver], monkeypatch: pytest.MonkeyPatch, name: str = UNDER_TEST) -> None:
    """Let the class be found by name, as if its package had the entry point."""
    group = hilserver.driver.INSTALLED
    others = [entry for entry in installed(group) if entry.name != name]
    offered = EntryPoint(name, f"{driver.__module__}:{driver.__qualname__}", group)
    monkeypatch.setattr(hilserver.driver, "installed", lambda group: [*others, offered])


def load_rig_with(bench: Bench, source: str, output: str) -> Rig:
    """The demo rig with the device in it: the supply's pressure from its input, the servo valve at its output."""
    demo = load_rig(ROOT / "config/rigs/demo.toml")
    table = dict(demo.sources["rig"])
    measured = {"device": NAME, "source": source, "scale": {"raw": [0, 10], "value": ["0 bar", "250 bar"]}}
    table["devices"] = {**table["devices"], NAME: {"driver": UNDER_TEST, **bench.settings}}
    table["channels"] = {**table["channels"], "p_S": measured}
    table["valves"] = {"main": {**table["valves"]["main"], "device": NAME, "output": output}}
    return assemble({**demo.sources, "rig": table}, demo.file, standard_library())
