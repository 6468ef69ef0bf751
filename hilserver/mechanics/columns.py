"""A mechanism as tables: where what stands in its block of a packed circuit's index.

A block begins with these entries; then come a line per actuator (place of its position in z, its speed behind it; place
of the sum of forces in d, the sum of masses behind it), and the tables of the method.
"""

from __future__ import annotations

METHOD, FIRST_STATE, PARAMETERS, SCRATCH, N_ACTUATORS = 0, 1, 2, 3, 4
"""Which method; first of its states in z; of its numbers in val; of its scratch space in d."""
OWN = 5
"""First entry of the method's own (how many bodies, closures, …)."""
NODES = 10
"""First line of the actuators' table."""

ABSOLUTE, RECURSIVE = 0, 1
