"""The NI-DAQmx driver through the real nidaqmx package, on a fake of the library that it loads."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from driver_conformance import HardwareConformance
from fake_nidaqmx import AI, CI, FakeNi, needs_compiler
from ni_bench import EVERYTHING, NiBench, Opened, eventually, of, read
from pydantic import ValidationError

from hilserver.driver import FoundDevice
from hilserver.errors import DriverError
from hilserver_drivers.ni import NiDaq

pytestmark = [needs_compiler, pytest.mark.slow]


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


def test_channels_state_unit_and_terminal() -> None:
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
    assert text.startswith("DriverError device io: NI's driver NI-DAQmx is not installed on this computer")


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
    assert "device io: p (Dev1/ai0): this channel does not support this kind of signal. NI-DAQmx error -200431" in str(
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


@pytest.mark.parametrize("function", list(CREATING))
def test_refusal_while_opening_names_the_setting_and_leaves_no_task(
    opened: Opened, fake_ni: FakeNi, function: str
) -> None:
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
    begin = time.monotonic()
    for _ in range(6):
        read(io)  # at the first one, a clock may be up to a period ago
    assert time.monotonic() - begin > 4 / 50
    time.sleep(3 / 50)
    before = io.errors["missed sample clock"]
    assert np.isnan(read(io)["p"])
    assert io.errors["missed sample clock"] == before + 1
    assert "device io: analog inputs: a sample clock of the device was missed" in io.last_error
    eventually(lambda: read(io)["p"] == 0.0)


def test_device_without_single_point_timing_reads_on_demand_and_reports_it(opened: Opened, fake_ni: FakeNi) -> None:
    io = opened(inputs={"p": {"channel": "ai0"}}, sample_clock="1 kHz")
    assert not of(fake_ni.calls(), "CfgSampClkTiming")
    assert read(io) == {"p": 0.0}
    assert io.errors == {"no hardware timing": 1}
    assert "Dev1 samples on demand" in io.last_error


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
