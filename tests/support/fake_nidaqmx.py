"""The fake of NI's libnidaqmx (fake_nidaqmx.c) built, and the Python side of the file in which its devices live.

The real nidaqmx package finds it as it finds the real one: by ``LD_LIBRARY_PATH`` in processes that a test starts; in
this process by having it loaded already under its name.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("fake_nidaqmx.c")
DEVICES, CHANNELS, FAULTS, LOG, LINE = 4, 16, 8, 8192, 96
AI, AO, DI, DO, CI, WATCHDOG = range(6)

needs_compiler = pytest.mark.skipif(
    shutil.which("gcc") is None, reason="gcc, which builds the fake NI driver, is missing"
)


class Device(ctypes.Structure):
    """One device, as ``struct device``."""

    _fields_ = (
        ("name", ctypes.c_char * 16),
        ("product", ctypes.c_char * 32),
        ("present", ctypes.c_int32),
        ("current", ctypes.c_int32),
        ("hardware_timed", ctypes.c_int32),
        ("watchdog", ctypes.c_int32),
        ("count", ctypes.c_int32 * 6),
        ("value", (ctypes.c_double * CHANNELS) * 6),
        ("power_up", (ctypes.c_double * CHANNELS) * 6),
        ("expiration", (ctypes.c_double * CHANNELS) * 6),
        ("watchdog_deadline", ctypes.c_double),
        ("watchdog_expired", ctypes.c_int32),
        ("unused", ctypes.c_int32),
    )


class Fault(ctypes.Structure):
    """An error that a function returns ``times`` times (-1: always), the first ``after`` calls not counted."""

    _fields_ = (
        ("function", ctypes.c_char * 48),
        ("code", ctypes.c_int32),
        ("after", ctypes.c_int32),
        ("times", ctypes.c_int32),
    )


class State(ctypes.Structure):
    """The whole file, as ``struct state``."""

    _fields_ = (
        ("device", Device * DEVICES),
        ("fault", Fault * FAULTS),
        ("delay", ctypes.c_double),
        ("logging", ctypes.c_int64),
        ("logged", ctypes.c_int64),
        ("log", (ctypes.c_char * LINE) * LOG),
    )


class FakeNi:
    """The fake driver with its devices: Dev1, a multifunction card, and a chassis with two modules for current.

    Dev1 has ai0…7, ao0…3, port0/line0…7, ctr0…1; cDAQ1Mod1 has ai0…3 (current), cDAQ1Mod2 has ao0…3 (current).
    The process that makes it needs its ``environment`` too, before a device is opened.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "devices"
        self._file.write_bytes(bytes(ctypes.sizeof(State)))
        library = folder / "libnidaqmx.so.1"
        subprocess.run(
            ["gcc", "-O2", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-o", library, SOURCE, "-lm"], check=True
        )
        (folder / "libnidaqmx.so").symlink_to(library)  # the name that a linker looks for
        with self._file.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.state = State.from_buffer(self._map)
        self._library = ctypes.CDLL(str(library))
        assert self._library.fake_size() == ctypes.sizeof(State)
        self.reset()

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs to find the library and the devices."""
        return {"LD_LIBRARY_PATH": str(self.folder), "FAKE_NIDAQMX": str(self._file)}

    def reset(self) -> None:
        """As new: devices plugged in, outputs 0, inputs 0, no errors, nothing logged."""
        ctypes.memset(ctypes.byref(self.state), 0, ctypes.sizeof(State))
        self._library.fake_forget_tasks()
        counts = {"Dev1": (8, 4, 8, 8, 2, 0), "cDAQ1Mod1": (4, 0, 0, 0, 0, 0), "cDAQ1Mod2": (0, 4, 0, 0, 0, 0)}
        products = {"Dev1": "PCIe-6321", "cDAQ1Mod1": "NI 9203", "cDAQ1Mod2": "NI 9265", "cDAQ1": "cDAQ-9185"}
        for device, (name, product) in zip(self.state.device, products.items(), strict=True):
            device.name, device.product, device.present = name.encode(), product.encode(), 1
            device.count[:] = counts.get(name, (0,) * 6)
            device.current = name.startswith("cDAQ")
            for kind in device.expiration:
                kind[:] = [math.nan] * CHANNELS
        self.state.logging = 1

    def device(self, name: str = "Dev1") -> Device:
        """A device by name, as it is now (its watchdog may have expired)."""
        self._library.fake_look()
        devices: list[Device] = list(self.state.device)
        return next(device for device in devices if device.name.decode() == name)

    def unplug(self, name: str = "Dev1") -> None:
        self.device(name).present = 0

    def plug(self, name: str = "Dev1") -> None:
        """With its outputs as after switching it on."""
        names = [device.name.decode() for device in self.state.device]
        self._library.fake_power_cycle(names.index(name))
        self.device(name).present = 1

    def inject(self, function: str, code: int, times: int = -1, after: int = 0) -> None:
        """Let ``DAQmx<function>`` return an error; times=0 takes the error back."""
        faults = list(self.state.fault)
        same = [fault for fault in faults if fault.function.decode() == function]
        fault = (same or [fault for fault in faults if fault.times == 0])[0]
        fault.function, fault.code, fault.after, fault.times = function.encode(), code, after, times

    def calls(self) -> list[str]:
        """Every call so far with its arguments, and "write Dev1/ao0 1.5" for what arrived at an output."""
        logged = self.state.logged
        assert logged <= LOG, "more calls than the log has lines: reset it in between, or switch it off"
        return [self.state.log[line].value.decode() for line in range(logged)]

    def open_tasks(self) -> int:
        """Tasks that were created in this process and not cleared."""
        return int(self._library.fake_open_tasks())

    def written(self) -> list[tuple[str, float]]:
        """Physical channel and raw value of all that arrived at outputs; without a line that is just being written."""
        words = (call.split() for call in self.calls() if call.startswith("write "))
        return [(word[1], float(word[2])) for word in words if len(word) == 3]
