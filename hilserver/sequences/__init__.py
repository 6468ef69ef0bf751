"""Test sequences: commands and faults over time, and the expected behaviour of the rig."""
