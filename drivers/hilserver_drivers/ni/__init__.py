"""NI-DAQmx: analog, digital and counter channels of a card, a USB device or a CompactDAQ chassis.

``settings``: the settings of a device in the rig file; ``system``: NI's driver on this machine and what it reports when
it refuses; ``connection``: the tasks of a device that is there; ``driver``: reading, writing, losing and finding it.
nidaqmx (extra ``ni``) and NI's driver are loaded when a device is opened, not before.
"""

from hilserver_drivers.ni.driver import NiDaq

__all__ = ["NiDaq"]
