"""Benchmarks: the tick and its parts, component types, drivers, wake-up latency."""
