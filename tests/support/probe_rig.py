"""A rig with two probes (probe.py) as its devices: one in the loop, one behind a worker process.

Its limits are ample, but that of the age: a worker that dies is replaced within a second, and the loop must trip first.
"""

MAX_AGE = 0.3
"""s"""
VALVE = """
[ports]
A = "p_A"
[inputs.flow]
[valves.main]
port = "A"
supply = "p_S"
tank = "p_T"
nominal_flow = { flow = "60 l/min", drop = "35 bar", per = "edge" }
f45 = "70 Hz"
raw = [-10, 10]
bridge = { strategy = "manual", jog_limit = 0.5, jog_time = "60 s" }
"""
"""One valve at port A; it lacks its device and output."""
SERVICE = """
[recording]
folder = "{folder}/logs"
[mqtt]
embedded = true
port = 0
"""
RIG = (
    """
name = "{name}"
circuit = "circuit.toml"
[loop]
rate = "500 Hz"
max_missed = 400
compiled_circuit = false
max_age = "{max_age}"
heartbeat_timeout = "2.5 s"
[devices.card]
driver = "fast_probe"
file = "{folder}/card"
[devices.io]
driver = "slow_probe"
file = "{folder}/io"
rate = "200 Hz"
watchdog = "500 ms"
hang_time = "1.5 s"
[channels]
p_A = { device = "card", source = "a", scale = { raw = [0, 10], value = ["0 bar", "100 bar"] } }
p_S = { device = "card", source = "b", scale = { raw = [0, 10], value = ["0 bar", "200 bar"] } }
p_T = { device = "io", source = "a", scale = { raw = [0, 10], value = ["0 bar", "10 bar"] } }
x = { device = "io", source = "c", scale = { raw = [0, 10], value = ["0 mm", "500 mm"] } }
{valve}device = "card"
output = "u"
[outputs.pump]
device = "io"
output = "u"
raw = [0, 5]
on = "armed"
[outputs.pulse]
device = "card"
output = "v"
raw = [0, 1]
on = "heartbeat"
{service}""".replace("{max_age}", f"{MAX_AGE} s")
    .replace("{valve}", VALVE)
    .replace("{service}", SERVICE)
)
CIRCUIT = """
[components.source]
type = "flow_source"
ports = { P = "rig.A", T = "t" }
flow = "40 l/min"
command = "flow"
[components.tank]
type = "tank"
ports = { T = "t" }
"""
