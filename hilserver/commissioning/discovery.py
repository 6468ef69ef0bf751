"""Which devices the installed drivers find on this machine, and what a rig file would say of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hilserver.driver import ChannelInfo, Driver, FoundDevice, installed_drivers
from hilserver.errors import DriverError


def described(drivers: Mapping[str, type[Driver]] | None = None) -> Iterator[str]:
    """All devices that are found, line by line: what each is, its table for a rig file, its channels.

    ``drivers``: by name; default: those that are installed. One that can't look says why.
    """
    for name, driver in (installed_drivers() if drivers is None else drivers).items():
        try:
            found = driver.discover()
        except DriverError as error:
            yield f"driver {name}: {error}"
            continue
        yield f"driver {name}: " + (f"{len(found)} found" if found else "nothing found")
        for device in found:
            yield from _device(name, device)


def _device(driver: str, device: FoundDevice) -> Iterator[str]:
    yield f"  {device.name}: {device.description}"
    yield f"    [devices.{device.name}]"
    for key, value in {"driver": driver, **device.settings}.items():
        yield f"    {key} = {_toml(value)}"
    for what, channels in (("inputs", device.inputs), ("outputs", device.outputs)):
        if channels:
            yield f"    {what}: {', '.join(_grouped(channels))}"


def _grouped(channels: Sequence[ChannelInfo]) -> Iterator[str]:
    """The channels, each unit behind the last channel that has it."""
    for info, after in zip(channels, [*channels[1:], None], strict=True):
        yield info.name if after is not None and after.unit == info.unit else f"{info.name} ({info.unit or 'number'})"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(part)}" for key, part in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
