"""Communication with a running server over MQTT, with any broker (MQTT 3.1.1).

`connect` is for scripts and notebooks; `request` and `read_status` are for programs with their own event loop.
"""

from hilserver.client.asking import Status, read_status, request, send, status
from hilserver.client.live import Client, CommandRefused, connect
from hilserver.client.samples import Samples, TelemetryRecorder
from hilserver.client.session import RequestFailed, Session, open_session
from hilserver.protocol.place import where

__all__ = [
    "Client",
    "CommandRefused",
    "RequestFailed",
    "Samples",
    "Session",
    "Status",
    "TelemetryRecorder",
    "connect",
    "open_session",
    "read_status",
    "request",
    "send",
    "status",
    "where",
]
