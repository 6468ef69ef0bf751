"""Drivers of hilserver: one module each, found by the entry point group ``hilserver.drivers``."""
