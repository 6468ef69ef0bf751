"""The topics of a rig."""

from hilserver.errors import shown

HEARTBEAT = "heartbeat"
"""Last level of the topic of an operator's heartbeat, beside those of the commands: anyone who may send commands may
send it, without any further right."""


class Topics:
    """The topics of one rig, ``hil/<rig>/...``. Raises ValueError if the rig's name is not allowed in a topic."""

    def __init__(self, rig: str) -> None:
        if not rig or not rig.isprintable() or set(rig) & set("/+#"):
            raise ValueError(f"{shown(rig)} can't be a rig's name in MQTT: it must not be empty or contain / + #.")
        self.prefix = f"hil/{rig}/"
        self.availability = self.prefix + "availability"
        self.description = self.prefix + "description"
        self.state = self.prefix + "state"
        self.circuit = self.prefix + "circuit"
        self.types = self.prefix + "types"
        self.margins = self.prefix + "margins"
        self.telemetry = self.prefix + "telemetry"
        self.event = self.prefix + "event"
        self.events = self.prefix + "events"
        self.answer = self.prefix + "answer"
        self.commands = self.prefix + "command/+"
        self.heartbeat = self.command(HEARTBEAT)
        self.published = tuple(self.prefix + name for name in TOPICS)
        """Everything that the server publishes."""

    def command(self, name: str) -> str:
        """The topic of the command with this name."""
        return f"{self.prefix}command/{name}"


TOPICS = {
    "availability": (True, '"online" or "offline" (plain text, by last will)'),
    "description": (True, "description of this server and its commands"),
    "state": (True, "state of the server: mode, fault, warnings, time, target and actual values"),
    "circuit": (True, "the active virtual circuit"),
    "types": (True, "the component types that a circuit may use, with ports and datasheet values"),
    "margins": (True, "whether the real valves are large and fast enough for the circuit, and the loop is stable"),
    "events": (True, "the latest events of this run of the server"),
    "telemetry": (False, "decimated samples, several per message"),
    "event": (False, "faults, switches, warnings"),
    "answer": (False, "the answer to each command"),
}
"""What the server publishes: whether the broker retains it, and its content."""
