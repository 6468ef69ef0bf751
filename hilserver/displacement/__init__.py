"""Design of displacement bridges: a position-controlled actuator with its specimen, filter and regulator."""
