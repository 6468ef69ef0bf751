"""The NI-DAQmx driver when something fails: errors of the library, silence, the watchdog, a whole run."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driver_bench import driving_process, patterns
from fake_nidaqmx import AO, DO, FakeNi, needs_compiler
from ni_bench import EVERYTHING, NiBench, Opened, eventually, of, read, write
from probe_rig import CIRCUIT, SERVICE, VALVE
from service_harness import Server, panel

from hilserver.errors import DriverError
from hilserver_drivers.ni import driver

pytestmark = [needs_compiler, pytest.mark.slow]


# --- failures ---------------------------------------------------------------------------------------------------------


FAILING = [
    ("ReadAnalogF64", -201003, "disconnected", "analog inputs"),
    ("ReadAnalogF64", -200045, "disconnected", "analog inputs"),
    ("ReadAnalogF64", -200077, "ni-daqmx error -200077", "analog inputs"),
    ("ReadDigitalLines", -50405, "disconnected", "digital inputs"),
    ("ReadCounterScalarF64", -200175, "disconnected", "counter x"),
    ("WriteAnalogF64", -201003, "disconnected", "outputs"),
    ("WriteDigitalLines", -88705, "disconnected", "outputs"),
]


@pytest.mark.parametrize(("function", "code", "name", "what"), FAILING)
def test_error_is_counted_and_everything_built_anew(
    opened: Opened, fake_ni: FakeNi, function: str, code: int, name: str, what: str
) -> None:
    io = opened(**EVERYTHING)
    told, count = [], io.failed
    io.failed = lambda error, text: (told.append(text), count(error, text))  # type: ignore[assignment,method-assign,func-returns-value]
    fake_ni.inject(function, code, times=1)
    fake_ni.inject("GetSystemInfoAttribute", -88705)  # with which it would look for the device
    if function.startswith("Write"):
        write(io, valve=3.0, enable=1.0)
    assert all(map(np.isnan, read(io).values()))
    write(io, valve=3.0, enable=1.0)
    assert io.errors == {name: 1}
    assert told[0].startswith(f"device io: {what}: ")
    assert told[0].endswith(f"NI-DAQmx error {code}: Injected into {function}.")
    eventually(lambda: io.last_error.startswith("device io: the device is not connected"))
    fake_ni.inject("GetSystemInfoAttribute", -88705, times=0)
    begin = len(fake_ni.written())
    eventually(lambda: not np.isnan(read(io)["p"]))
    assert fake_ni.written()[begin:] == [("Dev1/ao0", 0.0), ("Dev1/port0/line0", 0.0)]
    write(io, valve=3.0, enable=1.0)
    assert fake_ni.written()[-2:] == [("Dev1/ao0", 3.0), ("Dev1/port0/line0", 1.0)]


def test_timeout_loses_one_sample_only(opened: Opened, fake_ni: FakeNi) -> None:
    io = opened(**EVERYTHING)
    read(io)
    fake_ni.inject("ReadAnalogF64", -200284, times=1)
    time.sleep(0.02)
    values, ages = np.zeros(3), np.zeros(3)
    io.read(values, ages)
    assert np.isnan(values[0])
    assert values[1:].tolist() == [0.0, 0.0]
    assert ages[0] >= ages[1:].max() + 0.02
    assert read(io) == {"p": 0.0, "stop": 0.0, "x": 0.0}
    assert io.errors == {"timeout": 1}
    assert io.last_error.startswith("device io: analog inputs: no sample within the timeout. NI-DAQmx error -200284:")


def test_slow_device_is_given_up_after_the_timeout(opened: Opened, fake_ni: FakeNi) -> None:
    io = opened(inputs={"p": {"channel": "ai0"}}, timeout="30 ms")
    fake_ni.state.delay = 60.0
    assert np.isnan(read(io)["p"])  # the conformance class would see it block
    assert io.errors["timeout"] == 1


def test_lasting_silence_causes_a_reconnection(
    opened: Opened, fake_ni: FakeNi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "SILENCE", 0.1)
    io = opened(inputs={"p": {"channel": "ai0"}})
    fake_ni.inject("ReadAnalogF64", -200284)
    begin = len(of(fake_ni.calls(), "CreateTask"))
    eventually(lambda: np.isnan(read(io)["p"]) and len(of(fake_ni.calls(), "CreateTask")) > begin)
    fake_ni.inject("ReadAnalogF64", -200284, times=0)
    eventually(lambda: read(io)["p"] == 0.0)


def test_an_unplugged_device_with_outputs_only_is_an_error(opened: Opened, fake_ni: FakeNi) -> None:
    """With an input its age tells; without one the loop would go on with a valve that does not listen."""
    io = opened(outputs={"valve": {"channel": "ao0"}})
    fake_ni.unplug()
    for _ in range(2):
        with pytest.raises(DriverError, match=r"device io: outputs.*: the device is not connected"):
            write(io, valve=1.0)
    fake_ni.plug()
    eventually(lambda: fake_ni.written()[-1:] == [("Dev1/ao0", 0.0)])


def test_values_outside_the_range_and_non_finite_values_are_not_written(opened: Opened, fake_ni: FakeNi) -> None:
    io = opened(
        outputs={
            "valve": {"channel": "ao0", "safe": 1.5},
            "pump": {"channel": "ao1", "range": [0, 5]},
            "enable": {"channel": "port0/line0", "safe": 1},
        }
    )
    write(io, valve=11.0, pump=-0.001, enable=0.0)
    assert fake_ni.device().value[AO][0:2] == [10.0, 0.0]
    write(io, valve=np.nan, pump=4.0, enable=np.nan)
    assert fake_ni.device().value[AO][0:2] == [1.5, 4.0]
    assert fake_ni.device().value[DO][0] == 1.0
    write(io, valve=np.inf, pump=4.0, enable=0.0)
    assert fake_ni.device().value[AO][0] == 1.5
    assert io.errors == {"not a number": 2}


def test_closing_ends_the_search_for_the_device(opened: Opened, fake_ni: FakeNi) -> None:
    io = opened(**EVERYTHING)
    fake_ni.unplug()
    read(io)
    io.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("search")]
    assert not fake_ni.open_tasks()


def test_a_device_found_after_closing_is_released(
    opened: Opened, fake_ni: FakeNi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "SAFE_TIMEOUT", 0.02)
    io = opened(**EVERYTHING)
    searching, go_on, connect = threading.Event(), threading.Event(), io._connect

    def late(*arguments: Any, **options: Any) -> Any:
        searching.set()
        go_on.wait(10)
        return connect(*arguments, **options)

    monkeypatch.setattr(io, "_connect", late)
    fake_ni.inject("ReadAnalogF64", -201003, times=1)
    read(io)
    assert searching.wait(10)
    io.close()
    go_on.set()
    eventually(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("search")])
    assert not fake_ni.open_tasks()


def test_safe_values_are_rewritten_regardless_of_the_last_command(opened: Opened, fake_ni: FakeNi) -> None:
    io = opened(**EVERYTHING)
    fake_ni.device().value[DO][0] = 1.0
    io.make_safe()
    assert fake_ni.device().value[DO][0] == 0.0


def test_a_task_that_cannot_be_cleared_is_ignored(opened: Opened, fake_ni: FakeNi) -> None:
    io = opened(**EVERYTHING)
    fake_ni.inject("ClearTask", -201003)
    io.close()
    fake_ni.inject("ClearTask", -201003, times=0)
    io.open()
    assert read(io)["p"] == 0.0


# --- watchdog, power-up states ----------------------------------------------------------------------------------------


def test_watchdog_sets_its_outputs_safe_and_the_driver_unlocks_the_device(opened: Opened, fake_ni: FakeNi) -> None:
    device = fake_ni.device()
    device.watchdog = 1
    io = opened(
        inputs={"p": {"channel": "ai0"}},
        outputs={
            "valve": {"channel": "ao0", "safe": 0.5},
            "light": {"channel": "port0/line1"},
            "block": {"channel": "port0/line2", "safe": 1},
        },
        watchdog={"timeout": "50 ms", "outputs": ["valve", "block"]},
    )
    write(io, valve=3.0, light=1.0, block=0.0)
    assert device.value[AO][0] == 3.0
    eventually(lambda: fake_ni.device().watchdog_expired == 1)
    assert (device.value[AO][0], device.value[DO][1], device.value[DO][2]) == (0.5, 1.0, 1.0)
    write(io, valve=3.0, light=1.0, block=0.0)
    assert device.value[AO][0] in (0.5, 0.0), "at its safe value, or reset already"
    assert io.errors["watchdog expired"] >= 1
    eventually(lambda: not np.isnan(read(io)["p"]))
    assert "ResetDevice Dev1" in fake_ni.calls()
    write(io, valve=2.0, light=1.0, block=0.0)
    assert device.value[AO][0] == 2.0


def test_watchdog_acts_for_a_killed_process(fake_ni: FakeNi) -> None:
    fake_ni.device().watchdog = 1
    bench = NiBench(fake_ni)
    bench.settings = {**bench.settings, "watchdog": {"timeout": "300 ms", "outputs": ["valve", "enable", "block"]}}
    with driving_process(bench) as process:
        process.kill()
        process.wait(30)
    eventually(lambda: fake_ni.device().watchdog_expired == 1)
    device = fake_ni.device()
    assert (device.value[AO][1], device.value[DO][4], device.value[DO][5]) == (0.25, 0.0, 1.0)
    assert device.value[AO][0] == patterns(bench.output_span)[0]["pump"]  # not guarded: as the process left it


def test_device_without_watchdog_is_refused(opened: Opened) -> None:
    with pytest.raises(DriverError, match=r"device io: watchdog: the device has no watchdog\. NI-DAQmx error -200662"):
        opened(**EVERYTHING, watchdog={"timeout": "50 ms", "outputs": ["valve"]})


def test_safe_values_are_stored_once(opened: Opened, fake_ni: FakeNi) -> None:
    settings = {
        "outputs": {"valve": {"channel": "ao1", "safe": 0.5}, "block": {"channel": "port0/line2", "safe": 1}},
        "store_safe": True,
    }
    opened(**settings).close()
    assert list(fake_ni.device().power_up[AO])[:3] == [0.0, 0.5, 0.0]
    assert list(fake_ni.device().power_up[DO])[:4] == [0.0, 0.0, 1.0, 0.0]
    opened(**settings).close()
    assert len(of(fake_ni.calls(), "SetAnalogPowerUpStatesWithOutputType", "SetDigitalPowerUpStates")) == 2


# --- a whole run ------------------------------------------------------------------------------------------------------


RIG = """
name = "{name}"
circuit = "circuit.toml"
[loop]
rate = "500 Hz"
max_missed = 1000
max_age = "1 s"
[devices.daq]
driver = "ni"
device = "Dev1"
[devices.daq.inputs]
p_A = { channel = "ai0" }
p_S = { channel = "ai1" }
p_T = { channel = "ai2" }
[devices.daq.outputs]
valve = { channel = "ao0" }
pump = { channel = "port0/line4" }
[channels]
p_A = { device = "daq", source = "p_A", scale = { raw = [0, 10], value = ["0 bar", "100 bar"] } }
p_S = { device = "daq", source = "p_S", scale = { raw = [0, 10], value = ["0 bar", "200 bar"] }, watch.supply = "off" }
p_T = { device = "daq", source = "p_T", scale = { raw = [0, 10], value = ["0 bar", "10 bar"] } }
{valve}device = "daq"
output = "valve"
[outputs.pump]
device = "daq"
output = "pump"
raw = [0, 1]
on = "armed"
{service}""".replace("{valve}", VALVE).replace("{service}", SERVICE)


@pytest.mark.realtime
def test_run_survives_an_unplugged_device_and_a_dead_loop_leaves_safe_values(tmp_path: Path, fake_ni: FakeNi) -> None:
    fake_ni.state.logging = 0
    (tmp_path / "circuit.toml").write_text(CIRCUIT)
    server = Server(tmp_path, text=RIG.replace("{folder}", str(tmp_path)))  # finds the library by this environment
    with server:
        asyncio.run(unplug_and_kill(server, fake_ni))


async def unplug_and_kill(server: Server, ni: FakeNi) -> None:
    """By way of FAULT back to RUNNING without a new start; then the loop is killed."""

    def outputs() -> tuple[float, float]:
        device = ni.device()
        return device.value[AO][0], device.value[DO][4]

    async def has(*expected: float) -> None:
        await asyncio.to_thread(eventually, lambda: outputs() == pytest.approx(expected))

    async with panel(server) as user:
        for _ in range(2):
            for name in ("arm", "start"):
                await user.do(name)
            await user.do("jog", valve="main", command=0.2)
            await has(2.0, 1.0)
            start = len(user.seen)
            ni.unplug()
            fault = await user.see("event", lambda event: event["kind"] == "fault", start)
            assert ".age was violated" in fault["text"]
            state = await user.see("state", lambda state: "disconnected" in state["devices"]["daq"]["errors"], start)
            assert "device daq" in state["devices"]["daq"]["last_error"]
            ni.plug()
            async with asyncio.timeout(60):
                while not (await user.command("reset"))["ok"]:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.05)
            await has(0.0, 0.0)
        for name in ("arm", "start"):
            await user.do(name)
        await user.do("jog", valve="main", command=0.2)
        await has(2.0, 1.0)
        server.note_children()
        server.kill("loop")
        await has(0.0, 0.0)
