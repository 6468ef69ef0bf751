"""The NI-DAQmx tasks of a connected device: created together, read and written in the loop, closed together."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hilserver.driver import Driver, Floats
from hilserver_drivers.ni.settings import NiChannel, NiInput, NiOutput, Signal
from hilserver_drivers.ni.system import doing


class InputGroup:
    """Input channels that are read by one call, and their places in the driver's arrays."""

    def __init__(self, what: str, slots: NDArray[np.intp], dtype: type, read: Callable[[Any, float], Any]) -> None:
        self.what = what
        self.slots = slots
        self._buffer: NDArray[Any] = np.zeros(len(slots), dtype=dtype)
        self._read = read

    def read(self, values: Floats, timeout: float) -> None:
        """Read raw values into their places; raises DaqError."""
        self._read(self._buffer, timeout)
        values[self.slots] = self._buffer


class NiConnection:
    """All tasks of a connected device: outputs at their safe values, inputs running, watchdog active.

    Raises DriverError if the device refuses a setting.
    """

    def __init__(self, driver: Driver, safe: Sequence[float], system: Any, counting: bool) -> None:
        self.made = time.monotonic()
        self.groups: list[InputGroup] = []
        self._driver, self._config, self._system = driver, driver.config, system
        self._write_analog: Callable[[Any], Any] | None = None
        self._write_digital: Callable[[Any], Any] | None = None
        self._reset_watchdog: Callable[[], None] | None = None
        self._levels: list[bool] = []
        self._tasks = ExitStack()
        try:
            self._add_watchdog()  # first: nothing else of the device may run when it is started
            self._add_analog_outputs()
            self._add_digital_outputs()
            with doing(driver.name, "safe values"):
                self.write(safe, refresh=True)
            self._add_analog_inputs()
            self._add_digital_inputs()
            if counting:
                self._add_counters()
        except BaseException:
            self.close()
            raise

    def write(self, values: Sequence[float], refresh: bool = False) -> None:
        """Write raw values, limited to their ranges, to all outputs; resets the watchdog's time. Raises DaqError.

        Digital lines are written when one has changed, or with ``refresh``: each write to a USB device is slow.
        """
        if self._write_analog is not None:
            for place, (slot, least, greatest) in enumerate(self._analog):
                self._amounts[place] = min(max(values[slot], least), greatest)
            self._write_analog(self._amounts)
        if self._write_digital is not None:
            levels = [values[slot] > 0.5 for slot in self._digital]
            if refresh or levels != self._levels:
                self._lines[:] = levels
                self._write_digital(self._lines)
                self._levels = levels
        if self._reset_watchdog is not None:
            self._reset_watchdog()

    def close(self) -> None:
        """Release all tasks; the outputs stay as they are."""
        self._tasks.close()

    # --- building ---

    def _chosen(self, names: Sequence[str], table: Mapping[str, Any], *kinds: Signal) -> dict[int, tuple[str, Any]]:
        """Place in the driver's arrays -> name and settings, of the channels of these kinds."""
        return {slot: (name, table[name]) for slot, name in enumerate(names) if table[name].kind in kinds}

    def _physical(self, channel: NiChannel) -> str:
        return channel.physical(self._config.device)

    def _kept(self, task: Any) -> Any:
        """The task, which is closed with the connection."""
        import nidaqmx

        def close() -> None:
            with suppress(nidaqmx.DaqError):  # the device may be gone
                task.close()

        self._tasks.callback(close)
        return task

    @contextmanager
    def _task(
        self, what: str, chosen: Mapping[int, tuple[str, Any]], add: Callable[[Any, Any], None]
    ) -> Iterator[tuple[Any, NDArray[np.intp]]]:
        """A task with the chosen channels, and their places; it is started when the caller has set it up."""
        import nidaqmx

        with doing(self._driver.name, what):
            task = self._kept(nidaqmx.Task())
        for name, channel in chosen.values():
            with doing(self._driver.name, f"{name} ({self._physical(channel)})"):
                add(task, channel)
        with doing(self._driver.name, what):
            yield task, np.array(list(chosen), dtype=np.intp)
            task.start()

    def _add_watchdog(self) -> None:
        """Only the outputs in use are monitored."""
        watchdog = self._config.watchdog
        guarded = [name for name in self._driver.outputs if watchdog is not None and name in watchdog.outputs]
        if not guarded:
            return
        from nidaqmx.constants import Level, WatchdogAOExpirState
        from nidaqmx.system.watchdog import AOExpirationState, DOExpirationState, WatchdogTask

        types = {"voltage": WatchdogAOExpirState.VOLTAGE, "current": WatchdogAOExpirState.CURRENT}
        analog, digital = [], []
        for output in map(self._config.outputs.get, guarded):
            if output.kind == "digital":
                level = Level.HIGH if output.safe else Level.LOW
                digital.append(DOExpirationState(self._physical(output), level))
            else:
                analog.append(AOExpirationState(self._physical(output), output.safe, types[output.kind]))
        with doing(self._driver.name, "watchdog"):
            task = self._kept(WatchdogTask(self._config.device, timeout=watchdog.timeout))
            if analog:
                task.cfg_watchdog_ao_expir_states(analog)
            if digital:
                task.cfg_watchdog_do_expir_states(digital)
            task.start()
        self._reset_watchdog = task.reset_timer

    def _add_analog_outputs(self) -> None:
        chosen = self._chosen(self._driver.outputs, self._config.outputs, "voltage", "current")
        if not chosen:
            return
        from nidaqmx.stream_writers import AnalogMultiChannelWriter

        def add(task: Any, channel: NiOutput) -> None:
            to = task.ao_channels
            add_it = to.add_ao_voltage_chan if channel.kind == "voltage" else to.add_ao_current_chan
            add_it(self._physical(channel), min_val=channel.span[0], max_val=channel.span[1])

        with self._task("analog outputs", chosen, add) as (task, slots):
            writer = AnalogMultiChannelWriter(task.out_stream, auto_start=False)
            writer.verify_array_shape = False
        self._analog = [(slot, *channel.span) for slot, (_, channel) in chosen.items()]
        self._amounts = np.zeros(len(slots))
        self._write_analog = writer.write_one_sample

    def _add_digital_outputs(self) -> None:
        chosen = self._chosen(self._driver.outputs, self._config.outputs, "digital")
        if not chosen:
            return
        from nidaqmx.constants import LineGrouping
        from nidaqmx.stream_writers import DigitalMultiChannelWriter

        def add(task: Any, channel: NiOutput) -> None:
            task.do_channels.add_do_chan(self._physical(channel), line_grouping=LineGrouping.CHAN_PER_LINE)

        with self._task("digital outputs", chosen, add) as (task, slots):
            writer = DigitalMultiChannelWriter(task.out_stream, auto_start=False)
            writer.verify_array_shape = False
        self._digital, self._lines = slots.tolist(), np.zeros(len(slots), dtype=np.bool_)
        self._write_digital = writer.write_one_sample_one_line

    def _add_analog_inputs(self) -> None:
        chosen = self._chosen(self._driver.inputs, self._config.inputs, "voltage", "current")
        if not chosen:
            return
        from nidaqmx.constants import CurrentShuntResistorLocation, TerminalConfiguration
        from nidaqmx.stream_readers import AnalogMultiChannelReader

        wirings = {
            "default": TerminalConfiguration.DEFAULT,
            "differential": TerminalConfiguration.DIFF,
            "rse": TerminalConfiguration.RSE,
            "nrse": TerminalConfiguration.NRSE,
            "pseudo_differential": TerminalConfiguration.PSEUDO_DIFF,
        }

        def add(task: Any, channel: NiInput) -> None:
            terms = dict(zip(("min_val", "max_val"), channel.span, strict=True))
            terms |= {"terminal_config": wirings[channel.wiring]}
            if channel.kind == "voltage":
                task.ai_channels.add_ai_voltage_chan(self._physical(channel), **terms)
                return
            if channel.shunt is not None:
                external = CurrentShuntResistorLocation.EXTERNAL
                terms |= {"shunt_resistor_loc": external, "ext_shunt_resistor_val": channel.shunt}
            task.ai_channels.add_ai_current_chan(self._physical(channel), **terms)

        with self._task("analog inputs", chosen, add) as (task, slots):
            self._clock(task, {self._physical(channel).partition("/")[0] for _, channel in chosen.values()})
            reader = AnalogMultiChannelReader(task.in_stream)
            reader.verify_array_shape = False
        self.groups.append(InputGroup("analog inputs", slots, np.float64, reader.read_one_sample))

    def _clock(self, task: Any, devices: Iterable[str]) -> None:
        """Let the device's own clock sample the analog inputs, if configured and supported."""
        if self._config.sample_clock is None:
            return
        import nidaqmx
        from nidaqmx.constants import AcquisitionType

        single_point = AcquisitionType.HW_TIMED_SINGLE_POINT
        for device in devices:
            modes: Sequence[Any] = ()
            with suppress(nidaqmx.DaqError):  # the property is not there on devices without a sample clock
                modes = self._system.devices[device].ai_samp_modes
            if single_point not in modes:
                text = f"{device} samples on demand: it has no hardware-timed single point, which sample_clock requires"
                self._driver.failed("no hardware timing", f"device {self._driver.name}: {text}.")
                return
        task.timing.cfg_samp_clk_timing(self._config.sample_clock, sample_mode=single_point)
        _report_missed_clocks(task)

    def _add_digital_inputs(self) -> None:
        chosen = self._chosen(self._driver.inputs, self._config.inputs, "digital")
        if not chosen:
            return
        from nidaqmx.constants import LineGrouping
        from nidaqmx.stream_readers import DigitalMultiChannelReader

        def add(task: Any, channel: NiInput) -> None:
            task.di_channels.add_di_chan(self._physical(channel), line_grouping=LineGrouping.CHAN_PER_LINE)

        with self._task("digital inputs", chosen, add) as (task, slots):
            reader = DigitalMultiChannelReader(task.in_stream)
            reader.verify_array_shape = False
        self.groups.append(InputGroup("digital inputs", slots, np.bool_, reader.read_one_sample_one_line))

    def _add_counters(self) -> None:
        """One task per channel."""
        from nidaqmx.constants import AngleUnits, Edge, EncoderType
        from nidaqmx.stream_readers import CounterReader

        decodings = {"x1": EncoderType.X_1, "x2": EncoderType.X_2, "x4": EncoderType.X_4}
        edges = {"rising": Edge.RISING, "falling": Edge.FALLING}

        def add(task: Any, channel: NiInput) -> None:
            terminal, to = self._physical(channel), task.ci_channels
            if channel.kind == "edges":
                to.add_ci_count_edges_chan(terminal, edge=edges[channel.edge])
                return
            decoding = decodings[channel.decoding]
            to.add_ci_ang_encoder_chan(terminal, "", decoding, channel.index, units=AngleUnits.TICKS)

        for slot, chosen in self._chosen(self._driver.inputs, self._config.inputs, "encoder", "edges").items():
            with self._task(f"counter {chosen[0]}", {slot: chosen}, add) as (task, slots):
                reader = CounterReader(task.in_stream)
                edges_only = chosen[1].kind == "edges"
                read = reader.read_one_sample_uint32 if edges_only else reader.read_one_sample_double
            self.groups.append(InputGroup(f"counter {chosen[0]}", slots, np.float64, _counter(read)))


def _counter(read_one: Callable[[float], float]) -> Callable[[Any, float], None]:
    """A counter's read with the signature of the others."""

    def read(buffer: Any, timeout: float) -> None:
        buffer[0] = read_one(timeout)

    return read


def _report_missed_clocks(task: Any) -> None:
    """Make a read that missed a sample clock fail. A property of NI's C interface that nidaqmx does not provide."""
    import nidaqmx.errors
    from nidaqmx._lib import lib_importer

    with suppress(nidaqmx.errors.DaqFunctionNotSupportedError):
        function = lib_importer.windll.DAQmxSetRealTimeReportMissedSamp
        function.argtypes = [lib_importer.task_handle, ctypes.c_uint32]
        task._interpreter.check_for_error(function(task._handle, 1))
