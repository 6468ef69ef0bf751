"""NI-DAQmx: analog, digital and counter channels of a card, a USB device or a CompactDAQ chassis.

``settings``: the settings of a device in the rig file; ``system``: NI's driver on this computer and its error messages;
``connection``: the tasks of a connected device; ``driver``: reading, writing, and the loss and recovery of the device.
nidaqmx (extra ``ni``) and NI's driver are loaded when a device is opened, not before.
"""

from hilserver_drivers.ni.driver import NiDaq

__all__ = ["NiDaq"]
