"""Layout of a mechanism's block in the index of a packed circuit.

A block begins with these entries. Then follow one row per actuator (index in z of its stroke; index in d of the sum of
forces, with the sum of masses behind it; index in z of its speed), and the tables of the method.
"""

from __future__ import annotations

METHOD, FIRST_STATE, PARAMETERS, SCRATCH, N_ACTUATORS = 0, 1, 2, 3, 4
"""Method; first index of its states in z, of its numbers in val, of its scratch space in d; number of actuators."""
OWN = 5
"""First of the entries that the method defines (number of bodies, constraints, …)."""
NODES = 10
"""First row of the actuators' table."""

ABSOLUTE, RECURSIVE = 0, 1
