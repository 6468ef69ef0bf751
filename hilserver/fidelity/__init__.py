"""How accurately a rig reproduces its virtual circuit: reference simulation, strategies, segments, measures."""
