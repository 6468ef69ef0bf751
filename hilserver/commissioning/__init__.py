"""Commissioning: calibration, live values, discovery of devices, driving the rig, learned values, rates, doctor."""
