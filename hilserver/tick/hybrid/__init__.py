"""The bridge of displacement: a virtual structure on an actuator whose position is controlled."""
