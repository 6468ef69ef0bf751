"""Virtual commissioning: the bridged rig in simulation, over inputs, stroke and load, with a verdict per strategy."""
