"""How true a rig is to its virtual circuit: reference simulation, strategies, segments, measures."""
