"""Serial devices that send lines of text or binary frames, on request or unprompted.

``settings``: the settings of a device and its messages in the rig file; ``messages``: extraction of samples from
received bytes, and messages from commands; ``driver``: the sequence of requests and the treatment of failures. pyserial
(extra ``serial``) is loaded when a device is opened, not before.
"""

from hilserver_drivers.serial_line.driver import SerialLine

__all__ = ["SerialLine"]
