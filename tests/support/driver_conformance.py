"""What every driver must do, whatever its device: test classes from which each driver's tests derive.

A driver's test file makes a *bench*: a fake device that works, with a hand on its sensors and its cables, and derives
``class TestMyDriver(HardwareConformance)`` with a fixture ``bench``. DriverConformance is what also holds for a device
that can't be unplugged (the simulated rig).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pytest
from driver_bench import (
    NAME,
    Bench,
    HardwareBench,
    Session,
    driving_process,
    last,
    load_rig_with,
    offer,
    patterns,
    within,
)
from pydantic import ValidationError

from hilserver.driver import Driver, Floats, FoundDevice
from hilserver.errors import ConfigurationError, DriverError, problems_of

__all__ = ["Bench", "DriverConformance", "HardwareBench", "HardwareConformance", "Session"]


def orders(names: Sequence[str]) -> list[tuple[str, ...]]:
    """All channels, as they are and reversed; every second one."""
    return [tuple(names), tuple(reversed(names)), tuple(names[::2])]


def only(values: Mapping[str, float], names: Iterable[str]) -> dict[str, float]:
    return {name: values[name] for name in names}


class DriverConformance:
    """For every driver."""

    @pytest.fixture(autouse=True)
    def _closed_at_the_end(self) -> Iterator[None]:
        """What a test that failed left open would disturb the next."""
        self._made: list[Driver] = []
        yield
        for driver in self._made:
            driver.close()

    def make(self, bench: Bench, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None) -> Driver:
        """A driver, not opened, with all channels or with these in this order."""
        driver = bench.make(bench.inputs if inputs is None else inputs, bench.outputs if outputs is None else outputs)
        self._made.append(driver)
        return driver

    def open(self, bench: Bench, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None) -> Session:
        """As the loop opens a device: open, then the safe values."""
        session = Session(self.make(bench, inputs, outputs), bench)
        session.driver.open()
        session.driver.make_safe()
        return session

    def test_channels_have_a_unit_and_a_name_of_their_own(self, bench: Bench) -> None:
        config = bench.driver.Config.model_validate(bench.settings)
        for offered, used in zip(bench.driver.channels(config), (bench.inputs, bench.outputs), strict=True):
            names = [info.name for info in offered]
            assert len(set(names)) == len(names)
            assert set(used) <= set(names)
            assert all(isinstance(info.unit, str) and isinstance(info.description, str) for info in offered)

    def test_unknown_setting_is_refused_with_its_key(self, bench: Bench) -> None:
        settings = {**bench.settings, "nonsense": 1}
        with pytest.raises(ValidationError) as caught:
            bench.driver.Config.model_validate(settings)
        (problem,) = problems_of(caught.value, settings, prefix="devices.io", names=bench.driver.Config.model_fields)
        assert problem.key == "devices.io.nonsense"

    def test_unknown_channel_is_refused_with_its_key(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        offer(bench.driver, monkeypatch)
        load_rig_with(bench, source=bench.inputs[0], output=bench.outputs[0])
        with pytest.raises(ConfigurationError) as caught:
            load_rig_with(bench, source="nonsense", output="rubbish")
        assert {problem.key for problem in caught.value.problems} == {"channels.p_S.source", "valves.main.output"}

    def test_safe_values_are_the_first_to_arrive(self, bench: Bench) -> None:
        driver = self.open(bench).driver
        first = dict(reversed(bench.written()))
        driver.close()
        assert first == pytest.approx(bench.safe)

    def test_safe_values_are_the_last_to_arrive(self, bench: Bench) -> None:
        session = self.open(bench)
        session.arrives(patterns(bench.output_span)[0])
        session.driver.make_safe()
        session.driver.close()
        assert last(bench.written()) == pytest.approx(bench.safe)

    def test_inputs_are_not_interchanged(self, bench: Bench) -> None:
        for names in orders(bench.inputs):
            session = self.open(bench, inputs=names)
            for values in patterns(bench.input_span):
                bench.measure(values)
                session.reads(only(values, names))
            session.driver.close()

    def test_outputs_are_not_interchanged(self, bench: Bench) -> None:
        for names in orders(bench.outputs):
            session = self.open(bench, outputs=names)
            for values in patterns(bench.output_span):
                session.arrives(only(values, names))
            session.driver.close()

    def test_device_may_have_inputs_or_outputs_only(self, bench: Bench) -> None:
        session = self.open(bench, outputs=())
        session.reads_something()
        session.driver.close()
        session = self.open(bench, inputs=())
        session.arrives(patterns(bench.output_span)[1])
        session.driver.close()

    def test_fresh_samples_are_young(self, bench: Bench) -> None:
        session = self.open(bench)
        bench.measure(patterns(bench.input_span)[1])
        session.reads(patterns(bench.input_span)[1])
        assert (session.ages < bench.patience).all()
        session.driver.close()

    def test_written_values_are_confirmed(self, bench: Bench) -> None:
        session = self.open(bench)
        values, ages = confirmed(session)
        assert np.isnan(values).all()
        assert np.isinf(ages).all()
        for pattern in patterns(bench.output_span):
            values, ages = confirmed_once(bench, session, pattern)
            assert (ages < bench.patience).all()
        session.driver.forget_confirmed()
        assert np.isinf(confirmed(session)[1]).all()
        session.driver.close()

    def test_a_stand_in_touches_no_device(self, bench: Bench) -> None:
        """The loop rehearses its ticks with it: it reads and writes like the driver, but nothing arrives."""
        session = self.open(bench)
        known, _ = confirmed_once(bench, session, patterns(bench.output_span)[1])
        known = known.copy()
        stand_in = session.driver.stand_in()
        assert (stand_in.name, stand_in.inputs, stand_in.outputs) == (NAME, (*bench.inputs,), (*bench.outputs,))
        before = bench.written()
        values, ages = np.zeros(len(bench.inputs)), np.zeros(len(bench.inputs))
        stand_in.read(values, ages)
        stand_in.command(in_order(session, patterns(bench.output_span)[0]), time.monotonic())
        stand_in.make_safe()
        stand_in.close()
        time.sleep(0.02)
        assert bench.written() == before
        assert (confirmed(session)[0] == known).all()
        session.reads_something()
        session.driver.close()

    def test_closing_twice_is_harmless(self, bench: Bench) -> None:
        driver = self.open(bench).driver
        driver.close()
        driver.close()
        self.make(bench).close()

    def test_no_failures_are_counted_in_normal_operation(self, bench: Bench) -> None:
        session = self.open(bench)
        session.reads_something()
        session.arrives(patterns(bench.output_span)[0])
        assert not session.driver.errors
        assert session.driver.last_error == ""
        session.driver.close()

    def test_discovery_writes_nothing(self, bench: Bench) -> None:
        before = bench.written()
        found = self.discover(bench)
        assert bench.written() == before
        for device in found:
            assert device.name
            assert set(device.settings) <= {"driver", *bench.driver.Config.model_fields}

    def discover(self, bench: Bench) -> Sequence[FoundDevice]:
        """What the driver finds; a driver's test may say more of it."""
        return bench.driver.discover()


class HardwareConformance(DriverConformance):
    """For every driver of a device that is somewhere else: at the end of a cable that can be pulled."""

    def test_configuration_and_construction_touch_no_device(self, bench: HardwareBench) -> None:
        bench.unplug()
        self.make(bench).close()

    def test_reading_and_writing_need_an_open_device(self, bench: HardwareBench) -> None:
        driver = self.make(bench)
        for _ in range(2):  # before it was opened, and after it was closed
            session = Session(driver, bench)
            with pytest.raises(DriverError, match=NAME):
                session.read()
            with pytest.raises(DriverError, match=NAME):
                session.write(bench.safe)
            if not bench.written():
                driver.open()
                driver.make_safe()
            driver.close()

    def test_missing_device_is_named(self, bench: HardwareBench) -> None:
        bench.unplug()
        driver = self.make(bench)
        with pytest.raises(DriverError, match=NAME):
            within(bench.patience, driver.open)
        driver.close()
        bench.plug()
        driver.open()
        driver.close()

    def test_device_can_be_opened_again(self, bench: HardwareBench) -> None:
        values = patterns(bench.input_span)[1]
        bench.measure(values)
        session = self.open(bench)
        session.driver.close()
        session.driver.open()
        session.driver.make_safe()
        session.reads(values)
        session.driver.close()

    def test_unplugged_device_gives_no_values_and_no_exception(self, bench: HardwareBench) -> None:
        session = self.open(bench)
        session.reads_something()
        bench.unplug()
        session.sees_nothing()
        before = session.ages.copy()
        session.write(bench.safe)
        time.sleep(0.02)
        session.read()
        assert (session.ages > before).all()
        assert session.driver.errors.total() > 0
        assert all(name == name.strip().lower() and len(name) < 50 for name in session.driver.errors)
        assert NAME in session.driver.last_error
        session.driver.close()

    def test_unplugged_device_confirms_nothing(self, bench: HardwareBench) -> None:
        session = self.open(bench)
        before, other = patterns(bench.output_span)[:2]
        last_values, _ = confirmed_once(bench, session, before)
        bench.unplug()
        session.sees_nothing()
        for _ in range(3):
            session.driver.command(in_order(session, other), time.monotonic())
            time.sleep(0.02)
        values, ages = confirmed(session)
        assert (values == last_values).all()
        assert (ages > 0.04).all()
        bench.plug()
        confirmed_once(bench, session, other)
        session.driver.close()

    def test_a_reconnected_device_resumes_automatically(self, bench: HardwareBench) -> None:
        values, command = patterns(bench.input_span)[1], patterns(bench.output_span)[1]
        bench.measure(values)
        session = self.open(bench)
        session.arrives(command)
        bench.unplug()
        session.sees_nothing()
        session.write(command)
        before = len(bench.written())
        bench.plug()
        bench.measure(values)
        session.reads(values)
        session.arrives(command, since=before)  # the same as before, which the device may have forgotten
        session.driver.close()

    def test_safe_values_can_be_written_after_a_failure(self, bench: HardwareBench) -> None:
        session = self.open(bench)
        session.arrives(patterns(bench.output_span)[1])
        bench.unplug()
        session.sees_nothing()
        bench.plug()
        before = len(bench.written())
        within(bench.patience, session.driver.make_safe)
        session.driver.close()
        assert last(bench.written()[before:]) == pytest.approx(bench.safe)

    def test_safe_values_that_do_not_arrive_are_reported(self, bench: HardwareBench) -> None:
        session = self.open(bench)
        session.reads_something()
        bench.unplug()
        with pytest.raises(DriverError, match=NAME):
            within(bench.patience, session.driver.make_safe)
        session.driver.close()

    @pytest.mark.parametrize("ending", ["return", "raise", "SIGTERM"])
    def test_process_that_ends_leaves_safe_values(self, bench: HardwareBench, ending: str) -> None:
        with driving_process(bench) as process:
            if ending == "SIGTERM":
                process.terminate()
            else:
                process.communicate(ending, timeout=30)
            process.wait(30)
        assert last(bench.written()) == pytest.approx(bench.safe)

    def test_after_a_killed_process_another_one_writes_the_safe_values(self, bench: HardwareBench) -> None:
        with driving_process(bench) as process:
            process.kill()
            process.wait(30)
        driver = self.open(bench).driver
        driver.close()
        assert last(bench.written()) == pytest.approx(bench.safe)


def in_order(session: Session, values: Mapping[str, float]) -> Floats:
    return np.array([values[name] for name in session.driver.outputs], dtype=np.float64)


def confirmed(session: Session) -> tuple[Floats, Floats]:
    """The raw values that the device has confirmed, and the ages of their commands."""
    values, at = np.zeros(len(session.driver.outputs)), np.zeros(len(session.driver.outputs))
    session.driver.confirmed(values, at)
    return values, time.monotonic() - at


def confirmed_once(bench: Bench, session: Session, values: Mapping[str, float]) -> tuple[Floats, Floats]:
    """Command values until they are confirmed."""
    wanted, deadline = in_order(session, values), time.monotonic() + bench.patience
    while True:
        session.read()
        session.driver.command(wanted, time.monotonic())
        found, ages = confirmed(session)
        if (found == wanted).all():
            return found, ages
        assert time.monotonic() < deadline, session.driver.last_error
        time.sleep(0.005)
