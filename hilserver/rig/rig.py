"""The rig of a run, as :mod:`hilserver.rig.build` makes it from the files, and its devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hilserver.circuit.library import Library
from hilserver.circuit.model import Circuit, read_circuit
from hilserver.circuit.pack import PackedCircuit, pack
from hilserver.circuit.variant import read_variant
from hilserver.driver import Driver, Pace, PlantDriver, SampleDriver, is_hardware
from hilserver.errors import HilserverError
from hilserver.protocol.address import BrokerAddress
from hilserver.rig.calibration import Calibration
from hilserver.rig.cycle import CycleSettings
from hilserver.rig.mobilities import with_mobilities
from hilserver.rig.plan import RowLayout
from hilserver.rig.sampling_lag import SlowDevices
from hilserver.rig.settings import HIGHEST_RATE, LOWEST_RATE, RigSettings
from hilserver.rig.simulated import PlantCircuit
from hilserver.tick.plan import Plan, plan_on
from hilserver.tick.plant import PlantArrays


@dataclass(frozen=True)
class Device:
    """A configured device: its driver, the driver's settings, and which of its channels the rig uses."""

    name: str
    driver: type[Driver]
    config: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def is_simulated(self) -> bool:
        """Whether it has a plant."""
        return issubclass(self.driver, PlantDriver)

    @property
    def is_replayed(self) -> bool:
        """Whether it gives recorded samples."""
        return issubclass(self.driver, SampleDriver)

    @property
    def is_hardware(self) -> bool:
        """Whether it exists outside of this program."""
        return is_hardware(self.driver)

    @property
    def rate(self) -> float | None:
        """How often its own process reads and writes it, 1/s; None if the loop does so, in every tick."""
        return self.config.rate if self.driver.pace is Pace.SLOW else None

    @property
    def drift(self) -> Any:
        """What changes in a simulated device while it runs, as its settings say; None if nothing does."""
        return getattr(self.config, "drift", None)

    def unknown_channels(self) -> tuple[set[str], set[str]]:
        """Inputs and outputs that the rig uses and the device has not."""
        inputs, outputs = self.driver.channels(self.config)
        return set(self.inputs) - {c.name for c in inputs}, set(self.outputs) - {c.name for c in outputs}


@dataclass(frozen=True)
class Rig:
    """Everything a run needs, validated: settings, devices, circuit, plan and row layout; and the sources as given."""

    file: Path
    settings: RigSettings
    circuit: Circuit
    cycle: CycleSettings | None
    devices: tuple[Device, ...]
    library: Library
    layout: RowLayout
    plan: Plan
    packed: PackedCircuit
    sources: Mapping[str, Any]
    first_plants: Mapping[str, PlantArrays] = field(repr=False)
    """The simulated devices as they begin; :meth:`plants` copies them."""
    plant_circuits: Mapping[str, PlantCircuit] = field(repr=False)
    """Their circuits."""
    calibrations: Mapping[str, tuple[Calibration, ...]] = field(default_factory=dict)
    """The history of each calibrated channel; ``settings`` holds what came of it."""
    speed: float = 1.0
    """Seconds of the rig per second of the clock, if the run is paced; see :func:`at_speed`."""
    accounts: bool = False
    """Whether its circuits are packed with their accounts, see `pack`. No result depends on it."""
    halvings: int = 0
    """Of the parts into which implicit methods divide their steps: of a rig run again with half the step."""

    @property
    def clock_rate(self) -> float:
        """Ticks per second of the clock, if the run is paced."""
        return self.settings.loop.rate * self.speed

    @property
    def slow_devices(self) -> SlowDevices:
        """Those that the loop itself does not read and write."""
        return slow_devices_of(self.settings, self.devices)

    @property
    def broker(self) -> BrokerAddress:
        """The broker that the rig file names; paths in it are relative to the rig file."""
        mqtt = self.settings.mqtt
        return BrokerAddress(**{name: getattr(mqtt, name) for name in BrokerAddress.model_fields}).beside(self.file)

    @cached_property
    def circuit_folder(self) -> Path:
        """The folder of the rig's circuit file, from which other circuits are switched in."""
        return (self.file.parent / self.settings.circuit).parent

    def pack(self, circuit: Circuit, file: str = "", like: PackedCircuit | None = None) -> PackedCircuit:
        """Pack another circuit for this rig; ``like``: see `pack`.

        Raises ConfigurationError, also if it is too large for the row.
        """
        known = self.layout
        packed = pack(circuit, self.library, known.bindings, known.ports, file, self.accounts, like, known.actuators)
        self.layout.check_space(packed, file)
        return with_mobilities(packed, circuit, self.settings, self.library)

    def plants(self) -> dict[str, PlantArrays]:
        """Fresh plants of the simulated devices, by device name: arrays of their own, at their initial values."""
        return {
            name: PlantArrays._make(array.copy() for array in plant)._replace(noise=plant.noise)  # only read
            for name, plant in self.first_plants.items()
        }

    def read_circuit(self, source: Mapping[str, Any], file: str = "", before: Circuit | None = None) -> Circuit:
        """Validate a circuit table for this rig; files that it names lie in the folder of the rig's circuit.

        ``before``: a circuit of the rig from which it differs little, see `read_variant`.
        """
        if before is None:
            return read_circuit(source, self.library, file, self.circuit_folder)
        return read_variant(before, source, self.library, file, self.circuit_folder)


def slow_devices_of(settings: RigSettings, devices: Iterable[Device]) -> SlowDevices:
    """The devices that the loop itself does not read and write."""
    return SlowDevices({d.name: d.rate for d in devices if d.rate is not None}, settings.loop.rate)


def at_speed(rig: Rig, speed: float) -> Rig:
    """The rig, to be run slower (speed below 1) or faster than real time. Raises HilserverError.

    Only the clock changes: a tick remains the same step of the physics, and takes 1/speed of its time. The time after
    which a jog ends is that of a person who renews it, in seconds of the clock.
    """
    real = [device.name for device in rig.devices if not device.is_simulated]
    if speed != 1.0 and real:
        text = f"device {', '.join(real)} is real, and its physics can't be slowed down or accelerated"
        raise HilserverError(f"{rig.file}: --speed is for rigs whose devices are all simulated: {text}.")
    plan = plan_on(rig.plan.block.copy())
    for driven in (plan.valve, plan.actuator):
        driven["jog_time"] *= speed / rig.speed
    changed = replace(rig, plan=plan, speed=speed)
    if not LOWEST_RATE <= changed.clock_rate <= HIGHEST_RATE:
        raise HilserverError(
            f"{rig.file}: at --speed {speed:g} the loop would tick {changed.clock_rate:g} times per second; the "
            f"possible range is {LOWEST_RATE:g} … {HIGHEST_RATE:g}, which is a speed of "
            f"{LOWEST_RATE / rig.settings.loop.rate:g} … "
            f"{HIGHEST_RATE / rig.settings.loop.rate:g} at loop.rate = {rig.settings.loop.rate:g} Hz."
        )
    return changed
