"""A single request to a running server: send one command and wait for its answer, or read the status."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from hilserver.client.session import open_session
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.commands import Command
from hilserver.protocol.published import Answer, CircuitStatus, Description, MarginStatus, ServerState


@dataclass(frozen=True)
class Status:
    """The retained topics of a server; None if nothing is retained. If not ``online``, they are outdated."""

    online: bool
    description: Description | None
    state: ServerState | None
    circuit: CircuitStatus | None
    margins: MarginStatus | None


async def request(address: BrokerAddress, rig: str, command: Command, *, within: float | None = None) -> Answer:
    """Send one command and return its answer; a command without an id gets one, and expires after ``within``.

    ``within`` in s, for the connection and for the answer each; by default the command's patience. Raises RequestFailed
    with the reason; a refused command is an answer, not an error. A rig that requires the heartbeats of its operator is
    neither armed nor started by this: use `connect` or `open_session`.
    """
    within = command.patience if within is None else within
    async with open_session(address, rig, within=within, operator=None) as session:  # which ends at once
        return await session.request(command, within=within)


async def read_status(address: BrokerAddress, rig: str, *, within: float = 5.0) -> Status:
    """The retained topics of a server. ``within`` in s. Raises RequestFailed with the reason."""
    async with open_session(address, rig, within=within) as session:
        with suppress(TimeoutError):  # a topic that was never published does not arrive
            await session.until(
                lambda: None not in (session.description, session.state, session.circuit, session.margins),
                min(within, 1.0),
            )
        return Status(session.online, session.description, session.state, session.circuit, session.margins)


def send(address: BrokerAddress, rig: str, command: Command, *, within: float | None = None) -> Answer:
    """Like ``request``, for callers without an event loop."""
    return asyncio.run(request(address, rig, command, within=within))


def status(address: BrokerAddress, rig: str, *, within: float = 5.0) -> Status:
    """Like ``read_status``, for callers without an event loop."""
    return asyncio.run(read_status(address, rig, within=within))
