"""Direct calls of an FMU's functions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import fmpy
from fmu_bench import TICK, Fmu

OK, ERROR = 0, 3
NULL = None
Logger = {
    "2.0": ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p),
    "3.0": ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p),
}


class Callbacks(ctypes.Structure):
    """``fmi2CallbackFunctions``."""

    _fields_ = (
        ("logger", Logger["2.0"]),
        ("allocate", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("finished", ctypes.c_void_p),
        ("environment", ctypes.c_void_p),
    )


class Caller:
    """Calls the functions of an FMU directly, and keeps its messages."""

    def __init__(self, fmu: Fmu) -> None:
        self.fmu, self.version = fmu, fmu.exported.version
        (library,) = fmu.folder.glob("binaries/*/*.so")
        self.library = ctypes.CDLL(str(library))
        self.messages: list[str] = []
        self.logger = Logger[self.version](lambda *words: self.messages.append(words[-1].decode()))
        self.callbacks = Callbacks()
        if self.version == "2.0":
            self.callbacks.logger = self.logger
        description = fmpy.read_model_description(str(fmu.folder), validate=False)
        self.token = (description.guid if self.version == "2.0" else description.instantiationToken).encode()
        self.folder = str(fmu.folder / "resources").encode()

    def function(self, name: str) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(self.library, f"fmi{self.version[0]}{name}")
        return found

    def new(
        self,
        name: bytes | None = b"one",
        token: bytes | None = b"",
        folder: bytes | None = b"",
        exchange: bool = False,
    ) -> int | None:
        """A new instance; by default with the right token and folder, for co-simulation."""
        token, folder = self.token if token == b"" else token, self.folder if folder == b"" else folder
        kind = "ModelExchange" if exchange else "CoSimulation"
        words: list[Any] = [name, int(not exchange), token, folder, ctypes.byref(self.callbacks), 0, 0]
        if self.version == "3.0":
            more = [] if exchange else [False, False, NULL, ctypes.c_size_t(0)]
            words = [name, token, folder, False, False, *more, NULL, self.logger, *([] if exchange else [NULL])]
        make: Any = self.function("Instantiate" if self.version == "2.0" else f"Instantiate{kind}")
        make.restype = ctypes.c_void_p
        instance: int | None = make(*words)
        return instance

    def start(self, instance: int) -> None:
        s, zero = ctypes.c_void_p(instance), ctypes.c_double(0.0)
        words = (s, 0, zero, zero, 0, zero)
        if self.version == "2.0":
            assert self.function("SetupExperiment")(*words) == OK
            assert self.function("EnterInitializationMode")(s) == OK
        else:
            assert self.function("EnterInitializationMode")(*words) == OK
        assert self.function("ExitInitializationMode")(s) == OK

    def call(self, name: str, instance: int | None, *words: Any) -> int:
        return int(self.function(name)(ctypes.c_void_p(instance), *words))

    def get(self, instance: int | None, *references: int) -> tuple[int, list[float]]:
        n = len(references)
        values = (ctypes.c_double * n)()
        return self.access("Get", instance, (ctypes.c_uint32 * n)(*references), n, values), list(values)

    def set(self, instance: int | None, reference: int, value: float) -> int:
        return self.access("Set", instance, (ctypes.c_uint32 * 1)(reference), 1, (ctypes.c_double * 1)(value))

    def access(self, what: str, instance: int | None, references: Any, n: int, values: Any) -> int:
        kind, more = ("Real", ()) if self.version == "2.0" else ("Float64", (ctypes.c_size_t(n),))
        return self.call(f"{what}{kind}", instance, references, ctypes.c_size_t(n), values, *more)

    def step(self, instance: int | None, time: float, length: float = TICK) -> int:
        words: list[Any] = [ctypes.c_double(time), ctypes.c_double(length), 0]
        if self.version == "3.0":
            words += [ctypes.byref(ctypes.c_bool()) for _ in range(3)] + [ctypes.byref(ctypes.c_double())]
        return self.call("DoStep", instance, *words)

    def said(self, *words: str) -> bool:
        """Whether the last message contains these words."""
        return all(word in self.messages[-1] for word in words)
