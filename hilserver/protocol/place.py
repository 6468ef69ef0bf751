"""Finding a server: on this computer, or at a remote broker."""

from __future__ import annotations

from pathlib import Path

from hilserver.errors import HilserverError
from hilserver.protocol.address import BrokerAddress, read_address
from hilserver.protocol.running import find


def where(rig: str | None = None, broker: str | None = None) -> tuple[str, BrokerAddress]:
    """The rig's name and its broker.

    ``broker``: ``host:port``, or a TOML file with address and login (``docs/mqtt.md``); without one the server that
    runs on this computer, called ``rig`` if there are several. Raises HilserverError if no such server is found.
    """
    if broker is None:
        return find(rig)
    if broker.endswith(".toml"):
        named, address = read_address(Path(broker))
        if rig is None and named is None:
            raise HilserverError(f'{broker}: which rig? Name it, or write in the file: rig = "..."')
        return rig or str(named), address
    host, _, port = broker.rpartition(":")
    if rig is None or not host or not port.isdigit():
        raise HilserverError(f'broker "{broker}": write host:port and name the rig too (--rig), or name a TOML file.')
    return rig, BrokerAddress(host=host, port=int(port))
