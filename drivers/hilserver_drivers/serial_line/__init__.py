"""Serial devices that send lines of text or binary frames, by themselves or when asked.

``settings``: the settings of a device and its messages in the rig file; ``messages``: finding samples in what arrives,
making messages of commands; ``driver``: what is asked when, and what becomes of failures. pyserial (extra ``serial``)
is loaded when a device is opened, not before.
"""

from hilserver_drivers.serial_line.driver import SerialLine

__all__ = ["SerialLine"]
