"""A flood of commands over the embedded broker: who sends it, and the end of that client's connection.

A message does not state its sender, and MQTT has no means to exclude a client. But the broker's log names the
sender, and a broker ends the connection of a client when another one connects under its name (MQTT 5, section 3.1.4).
A client that connects again is disconnected again, as long as it floods.
"""

from __future__ import annotations

import aiomqtt

from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.connection import new_client
from hilserver.service.broker import EmbeddedBroker
from hilserver.service.inbox import RATE

OBSERVED = 0.3
"""Seconds for which the broker's log is observed."""
PATIENCE = 2.0
"""Seconds allowed for a connection to the broker, which is busy."""


async def cut_off(broker: EmbeddedBroker, address: BrokerAddress) -> str:
    """Disconnect the clients that send more commands than are taken; returns a sentence on what was done."""
    sent = await broker.senders(OBSERVED)
    loud = [name for name, count in sent.items() if count > RATE * OBSERVED]
    if not loud:
        return "It is not known which client sent them."
    said = []
    for name in loud:
        ended = await _take_over(address, name)
        said.append(
            f'client "{name}" sent {sent[name]} in {OBSERVED:g} s and was {"" if ended else "not "}disconnected'
        )
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


async def _take_over(address: BrokerAddress, name: str) -> bool:
    """Connect under this client's name, and disconnect; returns whether that was possible."""
    try:
        async with new_client(address, aiomqtt.ProtocolVersion.V5, identifier=name, timeout=PATIENCE):
            return True
    except aiomqtt.MqttError:
        return False
