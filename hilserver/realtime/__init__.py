"""The tick and what it runs on: its clock, its scheduling, the shared memory and the real-time process."""
