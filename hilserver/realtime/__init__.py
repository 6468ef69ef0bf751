"""The real-time environment of the tick: clock, scheduling, shared memory and the real-time process."""
