"""Commissioning: calibration, live values, discovery of devices, driving the rig, rates, doctor."""
