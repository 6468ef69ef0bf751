"""The data that the supervisor passes to its child processes: arrays (npz, no pickle) and device tables (JSON).

Made from a rig in :mod:`hilserver.realtime.rig_setup`: the processes themselves start without loading settings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hilserver.circuit.own import OwnFile
from hilserver.circuit.pack import PackedCircuit
from hilserver.numerics.arrays import Floats, Indices, Integers
from hilserver.realtime.devices import DeviceSetup
from hilserver.realtime.queues import Bytes
from hilserver.realtime.scheduling import Scheduling
from hilserver.tick.plan import Plan, plan_on
from hilserver.tick.plant import PlantArrays


@dataclass(frozen=True)
class Setup:
    """Everything the real-time process needs."""

    plan: Plan
    index: Indices
    value: Floats
    row: Floats
    devices: tuple[DeviceSetup, ...]
    scheduling: Scheduling
    plants: Mapping[str, PlantArrays]
    own: tuple[OwnFile, ...] = ()
    """Files with components of the user, as the supervisor has read them: all processes build the same library."""
    speed: float = 1.0
    """Seconds of the rig per second of the clock."""
    rehearsal: bool = False
    """Whether each tick is rehearsed before its deadline."""

    @property
    def period_s(self) -> float:
        """Time between two ticks on the clock, s."""
        return float(self.plan.loop[0].dt) / self.speed


def write_setup(setup: Setup, path: Path) -> None:
    """Write a set-up; only this user can read it."""
    arrays: dict[str, Any] = {"plan": setup.plan.block, "index": setup.index, "value": setup.value, "row": setup.row}
    for device, plant in setup.plants.items():
        arrays |= {f"plant.{device}.{name}": value for name, value in plant._asdict().items()}
    text = {
        "devices": [asdict(d) for d in setup.devices],
        "scheduling": asdict(setup.scheduling),
        "plants": [*setup.plants],
        "own": [asdict(file) for file in setup.own],
        "speed": setup.speed,
        "rehearsal": setup.rehearsal,
    }
    arrays["json"] = np.frombuffer(json.dumps(text, default=sorted).encode(), dtype=np.uint8)  # a set: CPUs
    path.touch(mode=0o600)
    with path.open("wb") as file:
        np.savez(file, **arrays)


def read_setup(path: Path) -> Setup:
    """Read back what write_setup wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        text = json.loads(arrays["json"].tobytes())
        plan = plan_on(arrays["plan"])
        plants = {
            device: PlantArrays(**{name: arrays[f"plant.{device}.{name}"] for name in PlantArrays._fields})
            for device in text["plants"]
        }
        index, value, row = arrays["index"], arrays["value"], arrays["row"]
    devices = tuple(DeviceSetup(**d) for d in text["devices"])
    scheduling = Scheduling(**text["scheduling"])
    own = tuple(OwnFile(**o) for o in text["own"])
    loop = {name: text[name] for name in ("speed", "rehearsal")}
    return Setup(plan, index, value, row, devices, scheduling, plants=plants, own=own, **loop)


def swap_payload(packed: PackedCircuit, carried: Integers, about: bytes) -> bytes:
    """A packed circuit for the mailbox: four lengths, index, value, carry-over map, and text for the recorder."""
    lengths = np.array([len(packed.index), len(packed.value), len(carried), len(about)], dtype=np.int64)
    return b"".join((*(part.tobytes() for part in (lengths, packed.index, packed.value, carried)), about))


def read_swap_payload(payload: Bytes) -> tuple[Indices, Floats, Integers]:
    """Index, value and carry-over map from the mailbox's bytes (copied: the slot will be overwritten)."""
    n_index, n_value, n_carried, _ = (int(n) for n in payload[:32].view(np.int64))
    a, b = 32 + 8 * n_index, 32 + 8 * (n_index + n_value)
    index = payload[32:a].view(np.uint64).copy()
    value = payload[a:b].view(np.float64).copy()
    return index, value, payload[b : b + 8 * n_carried].view(np.int64).copy()


def read_swap_text(payload: Bytes) -> bytes:
    """The text that came with a packed circuit."""
    start = 32 + 8 * int(payload[:24].view(np.int64).sum())
    return payload[start : start + int(payload[24:32].view(np.int64)[0])].tobytes()
