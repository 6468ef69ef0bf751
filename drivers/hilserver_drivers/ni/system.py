"""NI's driver on this computer: its devices, stored states and error messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from hilserver.driver import ChannelInfo, Driver, FoundDevice
from hilserver.errors import DriverError, did_you_mean
from hilserver_drivers.ni.settings import UNITS

# Codes: nidaqmx/error_codes.py. A code that is in none of these sets is shown with the text of NI-DAQmx.

TIMEOUT = {-200284}
LATE = {-209803, -209802, -209801, -201027}
EXPIRED = {-201478, -201434, -201433, -200712, -200681, -200678, -200644}
GONE = {-201401, -201390, -201003, -200220, -200175, -200045, -88705, -50405}
TAKEN = {-200587, -200022, -50103}
MEANINGS = (
    (TIMEOUT, "timeout", "no sample within the timeout"),
    (LATE, "missed sample clock", "a sample clock of the device was missed"),
    (EXPIRED, "watchdog expired", "the device's watchdog expired; its outputs are locked"),
    (GONE, "disconnected", "the device is not connected: unplugged, switched off, or known under another name"),
    (TAKEN, "in use", "in use by another program or by another channel of this rig"),
    ({-200170}, "no such channel", "the device has no such channel"),
    ({-200662}, "no watchdog", "the device has no watchdog"),
    ({-200431}, "wrong signal", "this channel does not support this kind of signal"),
)


def name_of(code: int) -> str:
    """The short name under which an NI-DAQmx error is counted."""
    return next((name for codes, name, _ in MEANINGS if code in codes), f"ni-daqmx error {code}")


def meaning_of(error: Any) -> str:
    """The text of a DaqError for the user, with NI's own text and the code."""
    said = re.sub(r"\s*[^.]*:$", "", str(error).partition("\n")[0].strip()).rstrip(".")  # without "Possible causes:"
    meaning = next((text for codes, _, text in MEANINGS if error.error_code in codes), "")
    return f"{meaning + '. ' if meaning else ''}NI-DAQmx error {error.error_code}: {said}"


class Refused(DriverError):
    """A DriverError that came from NI-DAQmx."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


@contextmanager
def doing(device: str, what: str) -> Iterator[None]:
    """Convert an error of NI-DAQmx in this context into a DriverError with the device and the action."""
    import nidaqmx

    try:
        yield
    except nidaqmx.DaqError as error:
        raise Refused(f"device {device}: {what}: {meaning_of(error)}.", error.error_code) from None


def local_system(who: str) -> Any:
    """NI's driver on this computer. Raises DriverError if it or its Python package is missing."""
    try:
        import nidaqmx.errors
        import nidaqmx.system
    except ImportError:
        text = 'NI-DAQmx needs the Python package nidaqmx: pip install "hilserver[ni]"'
        raise DriverError(f"{who}: {text}.") from None
    try:
        system = nidaqmx.system.System.local()
        _ = system.devices.device_names  # the first call loads NI's driver
    except nidaqmx.errors.DaqNotFoundError:
        text = "NI's driver NI-DAQmx is not installed on this computer: see ni.com, NI-DAQmx for Linux"
        raise DriverError(f"{who}: {text}.") from None
    except nidaqmx.DaqError as error:
        raise DriverError(f"{who}: {meaning_of(error)}.") from None
    return system


INPUT_LISTS = {"ai": "ai_physical_chans", "port": "di_lines", "ctr": "ci_physical_chans"}
OUTPUT_LISTS = {"ao": "ao_physical_chans", "port": "do_lines"}


def check_names(driver: Driver, system: Any) -> None:
    """Raises DriverError for a device or a terminal that NI-DAQmx does not know, with the known ones."""
    devices = {name.lower(): name for name in system.devices.device_names if name}
    used = [(f"inputs.{name}", driver.config.inputs[name], INPUT_LISTS) for name in driver.inputs]
    used += [(f"outputs.{name}", driver.config.outputs[name], OUTPUT_LISTS) for name in driver.outputs]
    for key, channel, lists in used:
        device, _, terminal = channel.physical(driver.config.device).partition("/")
        if device.lower() not in devices:
            known = did_you_mean(device, devices.values()) or " It knows none: is it plugged in?"
            raise DriverError(f'device {driver.name}: {key}: NI-DAQmx knows no device "{device}".{known}')
        with doing(driver.name, key):
            offered = getattr(system.devices[device], lists[channel.terminal]).channel_names
        terminals = [full.partition("/")[2] for full in offered]
        if terminal.lower() not in map(str.lower, terminals):
            known = did_you_mean(terminal, terminals)
            raise DriverError(f"device {driver.name}: {key}: {devices[device.lower()]} has no {terminal}.{known}")


def store_safe_values(driver: Driver, system: Any) -> None:
    """Store the safe values as the power-up states of the outputs; only differences are written."""
    from nidaqmx.constants import PowerUpChannelType, PowerUpStates
    from nidaqmx.types import AOPowerUpState, DOPowerUpState

    types = {"voltage": PowerUpChannelType.CHANNEL_VOLTAGE, "current": PowerUpChannelType.CHANNEL_CURRENT}
    outputs = {o.physical(driver.config.device): o for o in map(driver.config.outputs.get, driver.outputs)}
    with doing(driver.name, "store_safe"):
        analog = [AOPowerUpState(name, o.safe, types[o.kind]) for name, o in outputs.items() if o.kind in types]
        if analog:
            stored = system.get_analog_power_up_states_with_output_type([state.physical_channel for state in analog])
            if [state.power_up_state for state in stored] != [state.power_up_state for state in analog]:
                system.set_analog_power_up_states_with_output_type(analog)
        for device in {name.partition("/")[0] for name, o in outputs.items() if o.kind == "digital"}:
            stored = {s.physical_channel.lower(): s.power_up_state for s in system.get_digital_power_up_states(device)}
            wanted = {
                name: PowerUpStates.HIGH if o.safe else PowerUpStates.LOW
                for name, o in outputs.items()
                if o.kind == "digital" and name.partition("/")[0] == device
            }
            if any(stored.get(name.lower()) != state for name, state in wanted.items()):
                system.set_digital_power_up_states(device, [DOPowerUpState(*state) for state in wanted.items()])


def found_device(device: Any) -> FoundDevice:
    """A device with its analog inputs as settings, because reading these changes nothing. Raises DaqError."""
    from nidaqmx.constants import UsageTypeAI, UsageTypeAO

    def short(names: Iterable[str]) -> list[str]:
        return [name.partition("/")[2] for name in names if name]

    ai, ao = short(device.ai_physical_chans.channel_names), short(device.ao_physical_chans.channel_names)
    lines, counters = short(device.do_lines.channel_names), short(device.ci_physical_chans.channel_names)
    measured = "voltage" if not ai or UsageTypeAI.VOLTAGE in device.ai_meas_types else "current"
    given = "voltage" if not ao or UsageTypeAO.VOLTAGE in device.ao_output_types else "current"
    signal = {} if measured == "voltage" else {"signal": measured}
    settings: dict[str, Any] = {"driver": "ni", "device": device.name}
    if ai:
        settings["inputs"] = {name: {"channel": name, **signal} for name in ai}
    extra = [f"{len(lines)} digital lines"] * bool(lines) + [f"{len(counters)} counters"] * bool(counters)
    return FoundDevice(
        device.name,
        ", ".join([device.product_type, f"serial number {device.serial_num:08X}", *extra]),
        settings,
        [ChannelInfo(name, UNITS[measured], measured) for name in ai],
        [ChannelInfo(name, UNITS[given], given) for name in ao]
        + [ChannelInfo(name, "", "digital, may also be an input") for name in lines],
    )
