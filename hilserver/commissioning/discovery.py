"""Which devices the installed drivers find on this computer, with the tables that describe them in a rig file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tomlkit

from hilserver.driver import ChannelInfo, Driver, FoundDevice, installed_drivers
from hilserver.errors import DriverError


def described(drivers: Mapping[str, type[Driver]] | None = None) -> Iterator[str]:
    """All devices that are found, line by line: for each its description, its table for a rig file, its channels.

    ``drivers``: by name; default: those that are installed. A driver that can't search reports why.
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
    table = {key: _inline(value) for key, value in {"driver": driver, **device.settings}.items()}
    for line in tomlkit.dumps({"devices": {device.name: table}}).splitlines():
        yield f"    {line}"
    for what, channels in (("inputs", device.inputs), ("outputs", device.outputs)):
        if channels:
            yield f"    {what}: {', '.join(_grouped(channels))}"


def _grouped(channels: Sequence[ChannelInfo]) -> Iterator[str]:
    """The channels, each unit after the last channel that has it."""
    for info, after in zip(channels, [*channels[1:], None], strict=True):
        yield info.name if after is not None and after.unit == info.unit else f"{info.name} ({info.unit or 'number'})"


def _inline(value: Any) -> Any:
    """A setting with its tables in a single line each."""
    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        table.update({key: _inline(part) for key, part in value.items()})
        return table
    if isinstance(value, (list, tuple)):
        return [_inline(part) for part in value]
    return value
