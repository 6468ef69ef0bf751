"""The tick: channels, limits, modes, inputs, circuit, look-ahead, bridge, outputs; compiled into one function."""
