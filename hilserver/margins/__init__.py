"""Margins of the real valves: capacity, delay, solver."""
