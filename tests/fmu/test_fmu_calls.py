"""Bad calls of an FMU's functions return an error with a message, and change nothing."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fmu_bench import CONFIG, TICK, exported
from fmu_caller import ERROR, NULL, OK, Caller


@pytest.fixture(scope="module", params=["2.0", "3.0"])
def caller(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Caller:
    folder = tmp_path_factory.mktemp("fmu with 100 % ü")
    return Caller(exported(CONFIG / "circuits/verification.toml", folder, request.param))


@pytest.fixture
def running(caller: Caller) -> Iterator[int]:
    """An instance between two steps."""
    caller.messages.clear()
    instance = caller.new()
    assert instance is not None, caller.messages
    caller.start(instance)
    assert caller.step(instance, 0.0) == OK
    assert caller.messages == []
    yield instance
    caller.function("FreeInstance")(ctypes.c_void_p(instance))


def test_unknown_reference(caller: Caller, running: int) -> None:
    last = len(caller.fmu.exported.variables) - 1
    assert caller.get(running, last)[0] == OK
    for reference in (last + 1, 2**32 - 1):
        assert caller.get(running, reference)[0] == ERROR
        assert caller.said("value reference", str(reference), str(last))
        assert caller.set(running, reference, 0.0) == ERROR


def test_only_inputs_are_set(caller: Caller, running: int) -> None:
    joystick, pressure = caller.fmu.reference("joystick"), caller.fmu.reference("supply.p")
    assert caller.set(running, joystick, 0.5) == OK
    assert caller.get(running, joystick) == (OK, [0.5])
    before = caller.get(running, pressure)
    assert caller.set(running, pressure, 1e5) == ERROR
    assert caller.said("supply.p", "is calculated by the FMU")
    for value in (math.nan, math.inf):
        assert caller.set(running, joystick, value) == ERROR
        assert caller.said("joystick", "can't be set")
    assert caller.get(running, joystick, pressure) == (OK, [0.5, *before[1]])


def test_parameters_are_set_within_their_range_and_time(caller: Caller, running: int) -> None:
    reference = caller.fmu.reference
    mass, start, bore = map(reference, ("components.load.mass", "nodes.rod.position", "components.cylinder.bore"))
    for value in (1.0, 1e6):
        assert caller.set(running, mass, value) == ERROR
        assert caller.said("components.load.mass", "range", "100 to 10000")
    assert caller.set(running, mass, 1200.0) == OK
    assert caller.set(running, start, 0.12) == ERROR
    assert caller.said("nodes.rod.position", "before the start")
    assert caller.set(running, bore, 0.08) == ERROR
    assert caller.said("components.cylinder.bore", "export it again")
    assert caller.get(running, mass, start, bore) == (OK, [1200.0, 0.1, 0.063])
    assert caller.call("Reset", running) == OK
    assert caller.get(running, mass) == (OK, [1000.0])
    assert caller.set(running, start, 0.12) == OK
    caller.start(running)
    assert caller.get(running, start, reference("rod.x")) == (OK, [0.12, 0.12])


def test_null_pointers(caller: Caller, running: int) -> None:
    references, values = (ctypes.c_uint32 * 1)(0), (ctypes.c_double * 1)()
    for what in ("Get", "Set"):
        assert caller.access(what, running, NULL, 1, values) == ERROR
        assert caller.access(what, running, references, 1, NULL) == ERROR
        assert caller.said("null pointer")
        assert caller.access(what, running, NULL, 0, NULL) == OK
    suffix = "FMUstate" if caller.version == "2.0" else "FMUState"
    for name in (f"Get{suffix}", f"Set{suffix}", f"Free{suffix}"):
        assert caller.call(name, running, NULL) == ERROR
        assert caller.said("null pointer")
    assert caller.step(NULL, 0.0) == ERROR
    assert caller.get(NULL, 0)[0] == ERROR
    assert caller.call("Terminate", NULL) == ERROR
    assert caller.call("Reset", NULL) == ERROR
    caller.function("FreeInstance")(NULL)


def test_calls_in_the_wrong_state(caller: Caller, running: int) -> None:
    assert caller.call("ExitInitializationMode", running) == ERROR
    assert caller.said("ExitInitializationMode", "between steps")
    assert caller.call("Terminate", running) == OK
    assert caller.step(running, TICK) == ERROR
    assert caller.said("DoStep", "after the end")
    assert caller.set(running, caller.fmu.reference("joystick"), 0.0) == ERROR
    assert caller.get(running, 1)[0] == OK
    assert caller.call("Reset", running) == OK
    assert caller.step(running, 0.0) == ERROR
    assert caller.said("before the initialization")
    caller.start(running)
    assert caller.step(running, 0.0) == OK


def test_impossible_steps(caller: Caller, running: int) -> None:
    """The first step led to one tick."""
    for length in (0.0, -TICK, math.nan, math.inf):
        assert caller.step(running, TICK, length) == ERROR
        assert caller.said("communication step")
    for time in (0.0, 5.0, math.nan):
        assert caller.step(running, time) == ERROR
        assert caller.said("communication point", "0.001 s")
    assert caller.step(running, TICK) == OK


def test_another_token_name_or_folder(caller: Caller) -> None:
    assert caller.new(token=b"{of another FMU}") is None
    assert caller.said("GUID")
    assert caller.new(token=NULL) is None
    for name in (NULL, b""):
        assert caller.new(name=name) is None
        assert caller.said("name")
    assert caller.new(folder=NULL) is None
    assert caller.said("resources")
    assert caller.new(folder=b"/nowhere") is None
    assert caller.said("/nowhere/circuit.bin can't be read")


@pytest.mark.parametrize(
    "harm", [lambda data: data[:-1], lambda data: data + b"\0", lambda data: b"", lambda data: data[:90]]
)
def test_a_damaged_file_is_refused(harm: Callable[[bytes], bytes], caller: Caller, tmp_path: Path) -> None:
    data = (caller.fmu.folder / "resources/circuit.bin").read_bytes()
    (tmp_path / "circuit.bin").write_bytes(harm(data))
    assert caller.new(folder=str(tmp_path).encode()) is None
    assert caller.said("circuit.bin")


def test_divergence_is_an_error_that_names_a_value(caller: Caller, tmp_path: Path) -> None:
    """With a tick of 50 ms, far too long for the explicit method. An earlier state can be set again."""
    coarse = Caller(exported(CONFIG / "circuits/boom.toml", tmp_path, caller.version, tick=0.05))
    running, everything = coarse.new() or 0, range(len(coarse.fmu.exported.variables))
    coarse.start(running)
    kept = ctypes.c_void_p()
    suffix = "FMUstate" if coarse.version == "2.0" else "FMUState"
    assert coarse.call(f"Get{suffix}", running, ctypes.byref(kept)) == OK
    before = coarse.get(running, *everything)
    assert coarse.set(running, coarse.fmu.reference("joystick"), 1.0) == OK
    status = [coarse.step(running, k * 0.05, 0.05) for k in range(20)]
    assert ERROR in status
    first = status.index(ERROR)
    assert any(name in coarse.messages[0] for name in coarse.fmu.outputs)
    assert "not finite" in coarse.messages[0]
    assert "us is too long" in coarse.messages[0]
    assert status == [OK] * first + [ERROR] * (20 - first)
    assert coarse.said("after a failed step")
    assert coarse.call(f"Set{suffix}", running, kept) == OK
    assert coarse.get(running, *everything) == before
    assert coarse.step(running, 0.0, 0.05) == OK
    assert coarse.call(f"Free{suffix}", running, ctypes.byref(kept)) == OK
    assert kept.value is None
    coarse.function("FreeInstance")(ctypes.c_void_p(running))


def test_other_types_and_services_are_refused(caller: Caller, running: int) -> None:
    more = (ctypes.c_size_t(1),) if caller.version == "3.0" else ()
    one, values = (ctypes.c_uint32 * 1)(0), (ctypes.c_char_p * 4)()
    for kind in ("Boolean", "String"):
        for what in ("Get", "Set"):
            assert caller.call(f"{what}{kind}", running, one, ctypes.c_size_t(1), values, *more) == ERROR
            assert caller.said("all variables")
    assert (
        caller.call("GetDirectionalDerivative", running, one, ctypes.c_size_t(1), one, *[ctypes.c_size_t(0)] * 6)
        == ERROR
    )
    assert caller.messages[-1]
