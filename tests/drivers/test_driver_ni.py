"""The NI-DAQmx driver through the real nidaqmx package, on a fake of the library below it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from driver_conformance import HardwareBench, HardwareConformance, driving_process, patterns
from fake_nidaqmx import AI, AO, CI, DI, DO, FakeNi, needs_compiler
from pydantic import ValidationError
from service_harness import Server, panel

from hilserver.driver import FoundDevice
from hilserver.errors import DriverError
from hilserver_drivers.ni import NiDaq, driver

pytestmark = [needs_compiler, pytest.mark.slow]


class NiBench(HardwareBench):
    """The card Dev1 with analog and digital channels."""

    driver = NiDaq
    terminals: ClassVar = {
        "valve": "Dev1/ao1",
        "pump": "Dev1/ao0",
        "enable": "Dev1/port0/line4",
        "block": "Dev1/port0/line5",
    }

    def __init__(self, ni: FakeNi) -> None:
        self.ni = ni
        self.environment = ni.environment
        self.settings = {
            "device": "Dev1",
            "inputs": {
                "p_A": {"channel": "ai2"},
                "p_B": {"channel": "ai0"},
                "e_stop": {"channel": "port0/line1"},
                "p_S": {"channel": "Dev1/ai5", "range": [0, 10]},
                "door": {"channel": "port0/line0"},
            },
            "outputs": {
                "valve": {"channel": "ao1", "safe": 0.25},
                "enable": {"channel": "port0/line4"},
                "pump": {"channel": "ao0", "range": [0, 10]},
                "block": {"channel": "port0/line5", "safe": 1},
            },
        }
        self.input_span = {"p_A": (-1, 9.5), "p_B": (0.5, 3), "e_stop": (0, 1), "p_S": (1, 2), "door": (0, 1)}
        self.output_span = {"valve": (-10, 10), "enable": (1, 0), "pump": (1, 9), "block": (0, 1)}
        self.safe = {"valve": 0.25, "enable": 0.0, "pump": 0.0, "block": 1.0}
        self.timeout = 0.01

    def measure(self, values: Mapping[str, float]) -> None:
        device = self.ni.device()
        places = {"p_A": (AI, 2), "p_B": (AI, 0), "e_stop": (DI, 1), "p_S": (AI, 5), "door": (DI, 0)}
        for name, value in values.items():
            kind, index = places[name]
            device.value[kind][index] = value

    def written(self) -> list[tuple[str, float]]:
        names = {terminal: name for name, terminal in self.terminals.items()}
        return [(names[terminal], value) for terminal, value in self.ni.written()]

    def unplug(self) -> None:
        self.ni.unplug()

    def plug(self) -> None:
        self.ni.plug()


class TestNi(HardwareConformance):
    """On demand."""

    @pytest.fixture
    def bench(self, fake_ni: FakeNi) -> NiBench:
        return NiBench(fake_ni)


class TestNiWithClockAndWatchdog(TestNi):
    """Analog inputs by the device's own clock; clock and watchdog slow enough for a busy machine."""

    @pytest.fixture
    def bench(self, fake_ni: FakeNi) -> NiBench:
        fake_ni.device().hardware_timed = fake_ni.device().watchdog = 1
        bench = NiBench(fake_ni)
        watchdog = {"timeout": "3 s", "outputs": ["enable", "valve"]}
        bench.settings = {**bench.settings, "sample_clock": "20 Hz", "timeout": "200 ms", "watchdog": watchdog}
        return bench


Opened = Callable[..., NiDaq]


@pytest.fixture
def opened(fake_ni: FakeNi) -> Iterator[Opened]:
    """A function that opens a driver for a device with these settings; all are closed at the end."""
    made = []

    def make(**settings: Any) -> NiDaq:
        config = NiDaq.Config.model_validate({"device": "Dev1", **settings})
        io = NiDaq("io", config, tuple(config.inputs), tuple(config.outputs))
        made.append(io)
        io.open()
        return io

    yield make
    for io in made:
        io.close()


def read(io: NiDaq) -> dict[str, float]:
    values, ages = np.full(len(io.inputs), 1e33), np.full(len(io.inputs), -1.0)
    io.read(values, ages)
    return dict(zip(io.inputs, values.tolist(), strict=True))


def write(io: NiDaq, **values: float) -> None:
    io.write(np.array([values[name] for name in io.outputs], dtype=np.float64))


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def of(calls: list[str], *names: str) -> list[str]:
    """The calls of these functions."""
    return [call for call in calls if call.split()[0] in names]


# --- settings ---------------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no terminal": ({"inputs": {"p": {"channel": "oi3"}}}, 'channel: "oi3" is not one of the terminals ai0 or port0'),
    "an output as input": ({"inputs": {"p": {"channel": "ao0"}}}, 'channel: "ao0" is not one of the terminals'),
    "a counter of what": ({"inputs": {"x": {"channel": "ctr0"}}}, "signal: missing for ctr0: give encoder"),
    "a signal that can't be": ({"inputs": {"p": {"channel": "ai0", "signal": "edges"}}}, "ai0 can be voltage or curr"),
    "a shunt for voltage": ({"inputs": {"p": {"channel": "ai0", "shunt": 249}}}, "shunt: is for current, and ai0 is v"),
    "a range for a line": ({"outputs": {"e": {"channel": "port0/line1", "range": [0, 1]}}}, "range: is for voltage or"),
    "a range upside down": ({"inputs": {"p": {"channel": "ai0", "range": [5, -5]}}}, "range: the first value must be"),
    "safe beyond the range": (
        {"outputs": {"v": {"channel": "ao0", "signal": "current", "range": [0.004, 0.02]}}},
        "safe: 0 is not possible, it must be within 0.004 to 0.02 A",
    ),
    "a line half on": ({"outputs": {"e": {"channel": "port0/line1", "safe": 0.5}}}, "it must be 0 or 1"),
    "a terminal twice": (
        {"inputs": {"p": {"channel": "ai0"}, "q": {"channel": "dev1/AI0"}}},
        "inputs.q: dev1/AI0 is already inputs.p",
    ),
    "a line both ways": (
        {"inputs": {"p": {"channel": "port0/line0"}}, "outputs": {"e": {"channel": "port0/line0"}}},
        "outputs.e: Dev1/port0/line0 is already inputs.p",
    ),
    "a watchdog of nothing": (
        {"outputs": {"valve": {"channel": "ao0"}}, "watchdog": {"timeout": "50 ms", "outputs": ["vlave"]}},
        'there is no output "vlave". Did you mean valve?',
    ),
    "a clock too slow": ({"sample_clock": "100 Hz", "timeout": "10 ms"}, "less than two periods of sample_clock"),
}


@pytest.mark.parametrize("case", list(WRONG))
def test_wrong_setting_is_refused_in_words(case: str) -> None:
    settings, words = WRONG[case]
    with pytest.raises(ValidationError) as caught:
        NiDaq.Config.model_validate({"device": "Dev1", **settings})
    assert words in str(caught.value)


def test_channels_say_unit_and_terminal() -> None:
    config = NiDaq.Config.model_validate(
        {
            "device": "cDAQ1",
            "inputs": {
                "p": {"channel": "cDAQ1Mod1/ai0", "signal": "current"},
                "x": {"channel": "ctr0", "signal": "encoder"},
            },
            "outputs": {"e": {"channel": "cDAQ1Mod2/port0/line0"}},
        }
    )
    inputs, outputs = NiDaq.channels(config)
    assert [(c.name, c.unit, c.description) for c in (*inputs, *outputs)] == [
        ("p", "A", "current, cDAQ1Mod1/ai0"),
        ("x", "count", "encoder, cDAQ1/ctr0"),
        ("e", "", "digital, cDAQ1Mod2/port0/line0"),
    ]


# --- opening ----------------------------------------------------------------------------------------------------------


def open_elsewhere(environment: Mapping[str, str], preparation: str = "") -> str:
    """What a process says that opens a device."""
    script = f"""
{preparation}
from hilserver_drivers.ni import NiDaq
try:
    NiDaq("io", NiDaq.Config(device="Dev1", inputs={{"p": {{"channel": "ai0"}}}}), ["p"], []).open()
except Exception as error:
    print(type(error).__name__, error)
"""
    clean = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", "FAKE_NIDAQMX")}
    environment = {**clean, **environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_missing_driver_of_ni_is_named() -> None:
    text = open_elsewhere({})
    assert text.startswith("DriverError device io: NI's driver NI-DAQmx is not installed on this machine")


def test_missing_python_package_is_named(fake_ni: FakeNi) -> None:
    text = open_elsewhere(fake_ni.environment, "import sys; sys.modules['nidaqmx'] = None")
    assert text == 'DriverError device io: NI-DAQmx needs the Python package nidaqmx: pip install "hilserver[ni]".'
    assert open_elsewhere(fake_ni.environment) == ""  # and with both there is nothing to say


MISSING: dict[str, tuple[dict[str, Any], str]] = {
    "device": (
        {"device": "Dve1", "inputs": {"p": {"channel": "ai0"}}},
        'device io: inputs.p: NI-DAQmx knows no device "Dve1". Did you mean Dev1?',
    ),
    "module": (
        {"inputs": {"p": {"channel": "cDAQ1Mod7/ai0"}}},
        'inputs.p: NI-DAQmx knows no device "cDAQ1Mod7". Did you mean cDAQ1Mod',
    ),
    "input": ({"inputs": {"p": {"channel": "ai16"}}}, "device io: inputs.p: Dev1 has no ai16. Did you mean ai6?"),
    "output": ({"outputs": {"v": {"channel": "ao7"}}}, "device io: outputs.v: Dev1 has no ao7."),
    "line": ({"outputs": {"e": {"channel": "port3/line0"}}}, "outputs.e: Dev1 has no port3/line0."),
    "counter": ({"inputs": {"x": {"channel": "ctr5", "signal": "edges"}}}, "inputs.x: Dev1 has no ctr5."),
}


@pytest.mark.parametrize("case", list(MISSING))
def test_missing_device_or_channel_is_named_with_those_there_are(opened: Opened, case: str) -> None:
    settings, words = MISSING[case]
    with pytest.raises(DriverError) as caught:
        opened(**settings)
    assert words in str(caught.value)


def test_current_input_on_a_voltage_device_is_named(opened: Opened) -> None:
    with pytest.raises(DriverError) as caught:
        opened(inputs={"p": {"channel": "ai0", "signal": "current"}})
    assert "device io: p (Dev1/ai0): this channel is not for this kind of signal. NI-DAQmx error -200431" in str(
        caught.value
    )


def test_device_in_use_is_named(opened: Opened) -> None:
    opened(inputs={"p": {"channel": "ai0"}})
    with pytest.raises(DriverError, match=r"device io: analog inputs: in use by another program .* error -50103"):
        opened(inputs={"p": {"channel": "ai0"}})


CREATING = {
    "CreateTask": "analog outputs",
    "CreateAOVoltageChan": r"valve \(Dev1/ao0\)",
    "CreateDOChan": r"enable \(Dev1/port0/line0\)",
    "CreateAIVoltageChan": r"p \(Dev1/ai0\)",
    "CreateDIChan": r"stop \(Dev1/port0/line7\)",
    "CreateCIAngEncoderChan": r"x \(Dev1/ctr0\)",
    "StartTask": "analog outputs",
    "WriteAnalogF64": "safe values",
    "WriteDigitalLines": "safe values",
    "GetDeviceAttribute": "inputs.p",
}
EVERYTHING: dict[str, Any] = {
    "inputs": {
        "p": {"channel": "ai0"},
        "stop": {"channel": "port0/line7"},
        "x": {"channel": "ctr0", "signal": "encoder"},
    },
    "outputs": {"valve": {"channel": "ao0"}, "enable": {"channel": "port0/line0"}},
}


@pytest.mark.parametrize("function", list(CREATING))
def test_refusal_while_opening_says_what_for_and_leaves_no_task(opened: Opened, fake_ni: FakeNi, function: str) -> None:
    fake_ni.inject(function, -200077, times=1)
    with pytest.raises(DriverError, match=f"^device io: {CREATING[function]}: NI-DAQmx error -200077: Injected"):
        opened(**EVERYTHING)
    assert not fake_ni.open_tasks()
    opened(**EVERYTHING)


def test_settings_arrive(opened: Opened, fake_ni: FakeNi) -> None:
    opened(
        device="cDAQ1",
        inputs={
            "p": {"channel": "cDAQ1Mod1/ai1", "signal": "current"},
            "q": {"channel": "cDAQ1Mod1/ai0", "signal": "current", "shunt": 120, "range": [0.004, 0.02]},
        },
        outputs={"c": {"channel": "cDAQ1Mod2/ao3", "signal": "current", "range": [0.004, 0.02], "safe": 0.012}},
    )
    opened(
        inputs={
            "v": {"channel": "ai3", "wiring": "rse", "range": [0, 5]},
            "d": {"channel": "ai4", "wiring": "differential"},
        },
    )
    calls = fake_ni.calls()
    assert of(calls, "CreateAICurrentChan") == [
        "CreateAICurrentChan cDAQ1Mod1/ai1 -1 0 0.02 -1 249",
        "CreateAICurrentChan cDAQ1Mod1/ai0 -1 0.004 0.02 10167 120",
    ]
    rse, differential = 10083, 10106
    assert of(calls, "CreateAIVoltageChan") == [
        f"CreateAIVoltageChan Dev1/ai3 {rse} 0 5",
        f"CreateAIVoltageChan Dev1/ai4 {differential} -10 10",
    ]
    assert of(calls, "CreateAOCurrentChan") == ["CreateAOCurrentChan cDAQ1Mod2/ao3 0.004 0.02"]
    assert fake_ni.written() == [("cDAQ1Mod2/ao3", 0.012)]


def test_outputs_are_safe_before_anything_is_read_and_the_watchdog_comes_first(opened: Opened, fake_ni: FakeNi) -> None:
    fake_ni.device().watchdog = 1
    opened(**EVERYTHING, watchdog={"timeout": "1 s", "outputs": ["valve", "enable"]})
    names = [call.split()[0] for call in fake_ni.calls()]
    order = ["CreateWatchdogTimerTaskEx", "StartTask", "CreateAOVoltageChan", "CreateDOChan", "write"]
    order += ["ControlWatchdogTask", "CreateAIVoltageChan", "CreateDIChan", "CreateCIAngEncoderChan"]
    places = [names.index(name) for name in order]
    assert places == sorted(places)


# --- counters ---------------------------------------------------------------------------------------------------------

COUNTERS = {
    "x": {"channel": "ctr0", "signal": "encoder", "decoding": "x2", "index": True},
    "n": {"channel": "ctr1", "signal": "edges", "edge": "falling"},
    "p": {"channel": "ai0"},
}


def test_counters_count(opened: Opened, fake_ni: FakeNi) -> None:
    fake_ni.device().value[CI][0:2] = -17.0, 4294967295.0
    io = opened(inputs=COUNTERS)
    assert read(io) == {"x": -17.0, "n": 4294967295.0, "p": 0.0}
    x2, ticks, falling, up = 10091, 10304, 10171, 10128
    assert f"CreateCIAngEncoderChan Dev1/ctr0 {x2} 1 {ticks}" in fake_ni.calls()
    assert f"CreateCICountEdgesChan Dev1/ctr1 {falling} 0 {up}" in fake_ni.calls()


def test_count_that_was_lost_stays_missing(opened: Opened, fake_ni: FakeNi) -> None:
    """A device that was off begins at 0 again: a wrong position."""
    io = opened(inputs=COUNTERS)
    fake_ni.unplug()
    read(io)
    fake_ni.plug()
    eventually(lambda: not np.isnan(read(io)["p"]))
    assert np.isnan(read(io)["x"])
    assert np.isnan(read(io)["n"])
    assert io.errors["count lost"] == 1
    assert "the count of x, n was lost" in io.last_error
    io.close()
    io.open()
    assert read(io) == {"x": 0.0, "n": 0.0, "p": 0.0}


# --- the device's own clock -------------------------------------------------------------------------------------------


def test_sample_clock_paces_the_reads_and_missed_clocks_are_counted(opened: Opened, fake_ni: FakeNi) -> None:
    fake_ni.device().hardware_timed = 1
    io = opened(inputs={"p": {"channel": "ai0"}}, sample_clock="50 Hz", timeout="100 ms")
    assert of(fake_ni.calls(), "CfgSampClkTiming") == ["CfgSampClkTiming 50 12522"]
    time.sleep(3 / 50)
    assert np.isnan(read(io)["p"])
    assert io.errors["missed sample clock"] == 0  # before the first sample there is nothing to miss
    read(io)
    begin = time.monotonic()
    for _ in range(5):
        read(io)
    assert time.monotonic() - begin > 4 / 50
    time.sleep(3 / 50)
    before = io.errors["missed sample clock"]
    assert np.isnan(read(io)["p"])
    assert io.errors["missed sample clock"] == before + 1
    assert "device io: analog inputs: a sample clock of the device was missed" in io.last_error
    eventually(lambda: read(io)["p"] == 0.0)


def test_device_without_single_point_reads_on_demand_and_says_so(opened: Opened, fake_ni: FakeNi) -> None:
    io = opened(inputs={"p": {"channel": "ai0"}}, sample_clock="1 kHz")
    assert not of(fake_ni.calls(), "CfgSampClkTiming")
    assert read(io) == {"p": 0.0}
    assert io.errors == {"no hardware timing": 1}
    assert "Dev1 samples on demand" in io.last_error


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
    assert io.last_error.startswith("device io: analog inputs: no sample within the time-out. NI-DAQmx error -200284:")


def test_slow_device_is_given_up_after_the_timeout(opened: Opened, fake_ni: FakeNi) -> None:
    io = opened(inputs={"p": {"channel": "ai0"}}, timeout="30 ms")
    fake_ni.state.delay = 60.0
    assert np.isnan(read(io)["p"])  # the conformance class would see it block
    assert io.errors["timeout"] == 1


def test_lasting_silence_makes_a_new_start(opened: Opened, fake_ni: FakeNi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "SILENCE", 0.1)
    io = opened(inputs={"p": {"channel": "ai0"}})
    fake_ni.inject("ReadAnalogF64", -200284)
    begin = len(of(fake_ni.calls(), "CreateTask"))
    eventually(lambda: np.isnan(read(io)["p"]) and len(of(fake_ni.calls(), "CreateTask")) > begin)
    fake_ni.inject("ReadAnalogF64", -200284, times=0)
    eventually(lambda: read(io)["p"] == 0.0)


def test_output_that_nothing_tells_about_is_an_error_for_the_loop(opened: Opened, fake_ni: FakeNi) -> None:
    """With an input its age tells; without one the loop would go on with a valve that does not listen."""
    io = opened(outputs={"valve": {"channel": "ao0"}})
    fake_ni.unplug()
    for _ in range(2):
        with pytest.raises(DriverError, match=r"device io: outputs.*: the device is not connected"):
            write(io, valve=1.0)
    fake_ni.plug()
    eventually(lambda: fake_ni.written()[-1:] == [("Dev1/ao0", 0.0)])


def test_values_beyond_the_range_and_no_numbers_do_not_arrive(opened: Opened, fake_ni: FakeNi) -> None:
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


def test_closing_ends_the_search(opened: Opened, fake_ni: FakeNi) -> None:
    io = opened(**EVERYTHING)
    fake_ni.unplug()
    read(io)
    io.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("search")]
    assert not fake_ni.open_tasks()


def test_device_that_is_found_after_closing_is_let_go(
    opened: Opened, fake_ni: FakeNi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "LAST_CHANCE", 0.02)
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


def test_safe_values_are_written_again_whatever_the_driver_believes(opened: Opened, fake_ni: FakeNi) -> None:
    io = opened(**EVERYTHING)
    fake_ni.device().value[DO][0] = 1.0
    io.make_safe()
    assert fake_ni.device().value[DO][0] == 0.0


def test_task_that_can_not_be_cleared_disturbs_nothing(opened: Opened, fake_ni: FakeNi) -> None:
    io = opened(**EVERYTHING)
    fake_ni.inject("ClearTask", -201003)
    io.close()
    fake_ni.inject("ClearTask", -201003, times=0)
    io.open()
    assert read(io)["p"] == 0.0


# --- watchdog, power-up states ----------------------------------------------------------------------------------------


def test_watchdog_makes_safe_what_it_guards_and_the_driver_unlocks_the_device(opened: Opened, fake_ni: FakeNi) -> None:
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


# --- discovery --------------------------------------------------------------------------------------------------------


def test_discovery_finds_what_is_plugged_in_and_its_settings_can_be_read(fake_ni: FakeNi) -> None:
    fake_ni.unplug("cDAQ1Mod2")
    found = {device.name: device for device in NiDaq.discover()}
    assert found.keys() == {"Dev1", "cDAQ1Mod1", "cDAQ1"}
    card = found["Dev1"]
    assert card.description == "PCIe-6321, serial number 01234567, 8 digital lines, 2 counters"
    assert [(c.name, c.unit) for c in card.inputs] == [(f"ai{i}", "V") for i in range(8)]
    assert [c.name for c in card.outputs][:5] == ["ao0", "ao1", "ao2", "ao3", "port0/line0"]
    assert found["cDAQ1"].settings == {"driver": "ni", "device": "cDAQ1"}
    assert [(c.name, c.unit) for c in found["cDAQ1Mod1"].inputs] == [(f"ai{i}", "A") for i in range(4)]
    fake_ni.device("cDAQ1Mod1").value[AI][2] = 0.0137
    assert read_found(found["cDAQ1Mod1"])["ai2"] == 0.0137
    assert not of(fake_ni.calls(), "write", "CreateAOVoltageChan", "CreateDOChan", "SetDigitalPowerUpStates")


def read_found(device: FoundDevice) -> dict[str, float]:
    """What is there, without a rig file."""
    settings = {key: value for key, value in device.settings.items() if key != "driver"}
    io = NiDaq(device.name, NiDaq.Config.model_validate(settings), [c.name for c in device.inputs], [])
    io.open()
    values = read(io)
    io.close()
    return values


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
p_S = { device = "daq", source = "p_S", scale = { raw = [0, 10], value = ["0 bar", "200 bar"] } }
p_T = { device = "daq", source = "p_T", scale = { raw = [0, 10], value = ["0 bar", "10 bar"] } }
[ports]
A = "p_A"
[inputs.flow]
[valves.main]
port = "A"
supply = "p_S"
tank = "p_T"
nominal_flow = { flow = "60 l/min", drop = "35 bar", per = "edge" }
f45 = "70 Hz"
device = "daq"
output = "valve"
raw = [-10, 10]
bridge = { strategy = "manual", jog_limit = 0.5, jog_time = "60 s" }
[outputs.pump]
device = "daq"
output = "pump"
raw = [0, 1]
on = "armed"
[recording]
folder = "{folder}/logs"
[mqtt]
embedded = true
port = 0
"""
CIRCUIT = """
[components.source]
type = "flow_source"
ports = { P = "rig.A", T = "t" }
flow = "40 l/min"
command = "flow"
[components.tank]
type = "tank"
ports = { T = "t" }
"""


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
