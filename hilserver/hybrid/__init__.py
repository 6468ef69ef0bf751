"""Real-time hybrid simulation: a virtual structure, of which a part is a real specimen moved by an actuator.

Contains the benchmark problem of Silva, Gomez, Maghareh, Dyke & Spencer (2020), on which methods are compared in this
field, as an independent assessment of the displacement bridge.
"""
