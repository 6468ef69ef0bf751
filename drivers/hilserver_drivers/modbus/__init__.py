"""Modbus TCP and RTU: registers, coils and discrete inputs of one device, or of several on one line, as channels.

``settings``: the settings of a device in the rig file; ``line``: requests, the check of answers, framing over TCP and
on a serial line; ``driver``: the sequence of requests and the treatment of failures. pymodbus (extra ``modbus``) builds
the requests and is loaded when a device is opened, not before; connection, timeouts and the check of answers are part
of the driver (decision 0009).
"""

from hilserver_drivers.modbus.driver import Modbus

__all__ = ["Modbus"]
