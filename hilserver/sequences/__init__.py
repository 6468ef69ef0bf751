"""Test sequences: what is done to a rig over time, and what is expected of it."""
