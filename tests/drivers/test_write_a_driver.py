"""The driver on the page "Write a driver": taken from there, and checked for conformance like every driver."""

from __future__ import annotations

import importlib
import re
import socket
import threading
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from driver_bench import ROOT, HardwareBench, offer
from driver_conformance import HardwareConformance

from hilserver.circuit.library import standard_library
from hilserver.rig.build import assemble, load_rig

PAGE = (ROOT / "docs/write-a-driver.md").read_text()


def block(name: str) -> str:
    """A file of the page."""
    found = re.search(rf"<!-- file: {re.escape(name)} -->\n```\w+\n(.*?)^```$", PAGE, re.M | re.S)
    assert found is not None, f"the page has no file {name}"
    return found[1]


class Microcontroller:
    """What the page says of the device: answers datagrams while it is switched on."""

    def __init__(self) -> None:
        self.inputs: dict[str, float] = {}
        self.writes: list[tuple[str, float]] = []
        self.answer = "{number} {words}"
        self.port = 0
        self._socket: socket.socket | None = None
        self.switch_on()

    def switch_on(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", self.port))
        self._socket.settimeout(0.01)
        self.port = self._socket.getsockname()[1]
        self._on = True
        self._thread = threading.Thread(target=self._serve, args=(self._socket,))
        self._thread.start()

    def switch_off(self) -> None:
        if self._socket is not None:
            self._on = False
            self._thread.join()
            self._socket.close()
            self._socket = None

    def _serve(self, own: socket.socket) -> None:
        while self._on:
            try:
                question, sender = own.recvfrom(1500)
            except TimeoutError:
                continue
            number, verb, *names = question.decode().split()
            if verb == "get":
                words = " ".join(f"{self.inputs[name]:.9g}" for name in names)
            else:
                pairs = [name.split("=") for name in names]
                self.writes += [(name, float(value)) for name, value in pairs]
                words = "ok"
            own.sendto(self.answer.format(number=number, words=words).encode(), sender)


class BoxBench(HardwareBench):
    """The microcontroller and the page's driver."""

    def __init__(self, driver: type[Any]) -> None:
        self.driver = driver  # type: ignore[misc]
        self.box = Microcontroller()
        self.box.inputs = dict.fromkeys(("p1", "p2", "x"), 0.0)
        self.settings = {
            "host": "127.0.0.1",
            "port": self.box.port,
            "timeout": "200 ms",
            "inputs": ["p1", "p2", "x"],
            "outputs": {"valve": {"safe": 0.25}, "lamp": {}},
        }
        self.input_span = {"p1": (0.5, 9.75), "p2": (-1.0, 1.0), "x": (0.0, 10.0)}
        self.output_span = {"valve": (-10.0, 10.0), "lamp": (1.0, 5.0)}
        self.safe = {"valve": 0.25, "lamp": 0.0}
        self.timeout = 0.2

    def measure(self, values: Mapping[str, float]) -> None:
        self.box.inputs = dict(values)

    def written(self) -> list[tuple[str, float]]:
        return list(self.box.writes)

    def unplug(self) -> None:
        self.box.switch_off()

    def plug(self) -> None:
        self.box.switch_on()


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """The class of the page, imported from a file as any other."""
    (tmp_path / "lab_box.py").write_text(block("lab_drivers/lab_box.py"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(importlib.sys.modules, "lab_box", raising=False)  # type: ignore[attr-defined]
    driver: type[Any] = importlib.import_module("lab_box").Box
    return driver


@pytest.fixture
def bench(box: type[Any]) -> Iterator[BoxBench]:
    made = BoxBench(box)
    yield made
    made.box.switch_off()


class TestBox(HardwareConformance):
    """The rules of the page."""

    @pytest.mark.parametrize(
        ("answer", "name"),
        [
            ("{number} 1.0", "wrong answer"),
            ("{number} one two three", "wrong answer"),
            ("{number} {words} 4.0", "wrong answer"),
            ("{number}", "wrong answer"),
            ("0 {words}", "no answer"),
            ("", "no answer"),
        ],
    )
    def test_wrong_answers_give_no_values(self, bench: BoxBench, answer: str, name: str) -> None:
        session = self.open(bench)
        session.reads_something()
        bench.box.answer = answer
        session.sees_nothing()
        assert session.driver.errors[name] > 0
        assert session.driver.last_error.startswith("device io: ")


def test_settings_on_the_page_are_valid(box: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the demo's rig, with the entry point that the page shows."""
    (name, target), *_ = tomllib.loads(block("lab_drivers/pyproject.toml"))["project"]["entry-points"][
        "hilserver.drivers"
    ].items()
    assert target == f"{box.__module__}:{box.__qualname__}"
    offer(box, monkeypatch, name)
    shown = tomllib.loads(block("lab_drivers/device.toml"))
    demo = load_rig(ROOT / "config/rigs/demo.toml")
    table = dict(demo.sources["rig"])
    table = {**table, **{key: {**table[key], **shown[key]} for key in shown}}
    rig = assemble({**demo.sources, "rig": table}, demo.file, standard_library())
    assert rig.settings.channels["p_T"].device == "box"
