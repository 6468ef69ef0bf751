"""Real-time hybrid simulation: a virtual structure, of which a part is a real specimen moved by an actuator.

Contains the benchmark problem of Silva, Gomez, Maghareh, Dyke & Spencer (2020), on which this field compares its
methods, as an independent judge of the bridge of displacement.
"""
