"""The process with which driver_bench.py lets a driver drive its device; imports nothing that it doesn't need."""

from __future__ import annotations

import importlib
import json
import select
import signal
import sys

import numpy as np


def drive(device: str, task: str) -> None:
    """As the loop does, until its standard input says how to end, or SIGTERM comes."""
    name, settings, inputs, command = json.loads(task)
    module, _, kind = name.partition(":")
    driver_class = getattr(importlib.import_module(module), kind)
    driver = driver_class(device, driver_class.Config.model_validate(settings), inputs, tuple(command))
    values, ages, raw = np.zeros(len(inputs)), np.zeros(len(inputs)), np.array([*command.values()], dtype=np.float64)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    driver.open()
    try:
        driver.make_safe()
        while not select.select([sys.stdin], [], [], 0.002)[0]:
            driver.read(values, ages)
            driver.write(raw)
        if sys.stdin.read() == "raise":
            raise RuntimeError("as it was ordered")
    finally:
        driver.make_safe()
        driver.close()


if __name__ == "__main__":
    drive(*sys.argv[1:])
