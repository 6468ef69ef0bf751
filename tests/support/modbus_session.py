"""Modbus drivers with just the settings that a test wants, opened, with a device that the test has in its own hand."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from driver_bench import AnyBench, Session
from modbus_server import Server

from hilserver_drivers.modbus import Modbus
from hilserver_drivers.modbus.settings import ModbusConfig

TIMEOUT = 0.4
"""s for tests that wait for it; the benches have more, as nothing may time out there on a busy machine."""
INPUT = {"x": {"table": "holding", "address": 0, "type": "uint32"}}
"""Read with function 3, two registers. Tests write 0x00010002 there."""


def opened(server: Server, **settings: Any) -> Session:
    """A driver with just these settings, opened, all channels in use."""
    return opened_at({"tcp": {"host": "127.0.0.1", "port": server.port}}, **settings)


def opened_at(line: Mapping[str, Any], **settings: Any) -> Session:
    config = ModbusConfig.model_validate({"timeout": f"{TIMEOUT} s", **line, **settings})
    driver = Modbus("io", config, list(config.inputs), list(config.outputs))
    driver.open()
    return Session(driver, AnyBench(TIMEOUT))


def place(address: int, table: str = "holding", kind: str | None = "int16", **more: Any) -> dict[str, Any]:
    return {"table": table, "address": address, **({"type": kind} if kind else {}), **more}


def read_until_good(session: Session) -> None:
    """Until INPUT has the value that the test has written; nothing but that and no value may be seen before."""
    deadline = time.monotonic() + 60.0
    while session.read() != {"x": 0x10002}:
        assert np.isnan(session.values).all(), "a wrong value"
        assert time.monotonic() < deadline, session.driver.errors
        time.sleep(0.005)
