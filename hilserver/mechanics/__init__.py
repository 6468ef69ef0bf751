"""Mechanisms: bodies, joints and actuators that circuits move; read from TOML, solved in the circuit's integrator."""
