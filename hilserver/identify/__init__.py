"""Identification of the real valves from recorded commands and measured values."""
