"""Sends a command that stops the rig, as fast as a program can that is started for it.

The server carries these commands out whatever their expiry or payload, so nothing needs to be known of it beforehand:
this client waits for no description or state, and imports little.
"""

from __future__ import annotations

import json
import socket
import time
import uuid
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from hilserver.errors import HilserverError
from hilserver.protocol.address import BrokerAddress
from hilserver.protocol.topics import Topics

STOPPING = ("trip", "disarm", "stop")
"""Commands that only make the rig safer, the strongest first."""
LOOK_UP = 2.0
"""Seconds allowed for the broker to send the retained availability of a rig."""


def send_stopping(address: BrokerAddress, rig: str, name: str, *, within: float = 5.0) -> dict[str, Any]:
    """Send one of `STOPPING` and return the server's answer as it came (`published.Answer`); ``within`` in s.

    Raises HilserverError with the reason if there is no answer.
    """
    request = _Request(rig, name)
    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv311)
    client.on_connect, client.on_message = request.connected, request.received
    client.on_socket_open = _without_delay
    if address.user is not None:
        client.username_pw_set(address.user, address.password())
    if (context := address.tls()) is not None:
        client.tls_set_context(context)
    began = time.monotonic()
    try:
        client.connect(address.host, address.port)
        while request.answer is None and time.monotonic() < began + within:
            error = client.loop(0.1)
            if error != mqtt.MQTT_ERR_SUCCESS or request.trouble:
                raise HilserverError(_no_broker(address, request.trouble or mqtt.error_string(error)))
            request.check(address, time.monotonic() - began)
    except (OSError, ValueError) as error:
        raise HilserverError(_no_broker(address, error)) from None
    finally:
        client.disconnect()
    if request.answer is None:
        raise HilserverError(
            f"the server of rig {rig} did not answer {name} within {within:g} s. It may still be carried out: check "
            "the status. Or this login has no right to send commands, and the broker did not forward it."
        )
    return request.answer


class _Request:
    """One command and what arrives after it. ``trouble``: why the broker refused the login."""

    def __init__(self, rig: str, name: str) -> None:
        self.rig, self.name, self.id = rig, name, uuid.uuid4().hex
        self.answer: dict[str, Any] | None = None
        self.trouble = ""
        self._availability: str | None = None
        self._topics = Topics(rig)

    def connected(
        self, client: mqtt.Client, userdata: object, flags: object, code: ReasonCode, properties: Properties | None
    ) -> None:
        """Subscribe and send: the broker forwards the answer of a command that came after the subscription."""
        if code.is_failure:
            self.trouble = str(code)
            return
        client.subscribe([(self._topics.answer, 1), (self._topics.availability, 1)])
        client.publish(self._topics.command(self.name), json.dumps({"id": self.id}), qos=1)

    def received(self, client: mqtt.Client, userdata: object, message: mqtt.MQTTMessage) -> None:
        """Take the answer, or the availability of the server."""
        if message.topic == self._topics.availability:
            self._availability = message.payload.decode(errors="replace")
        elif (answer := json.loads(message.payload)).get("id") == self.id:
            self.answer = answer

    def check(self, address: BrokerAddress, elapsed: float) -> None:
        """Raise HilserverError if no answer can come."""
        if self.answer is None and self._availability not in (None, "online"):
            raise HilserverError(f"the server of rig {self.rig} is {self._availability}.")
        if self._availability is None and elapsed > LOOK_UP and self.answer is None:
            raise HilserverError(f"the MQTT broker {address} knows no rig {self.rig}.")


def _without_delay(client: mqtt.Client, userdata: object, sock: Any) -> None:
    """Nagle's algorithm would hold the command back until the subscription is acknowledged."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _no_broker(address: BrokerAddress, reason: object) -> str:
    return f"MQTT broker {address}: {reason}. Is it running, and is the address right?"
