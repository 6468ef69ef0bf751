"""The tick: signals, modes, circuit, look-ahead, bridge, outputs; compiled into one function."""
