"""The topics of a rig, its description topic, and the JSON Schema of every message."""

import json
from typing import Any

from pydantic import BaseModel

from hilserver.errors import shown
from hilserver.protocol.commands import COMMANDS
from hilserver.protocol.heartbeat import NAME as HEARTBEAT
from hilserver.protocol.heartbeat import OperatorHeartbeat
from hilserver.protocol.published import (
    PUBLISHED,
    ChannelDescription,
    CommandDescription,
    Description,
    InputDescription,
    OperatorDescription,
    TopicDescription,
    ValveDescription,
)


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
        self.answer = self.prefix + "answer"
        self.commands = self.prefix + "command/+"
        self.heartbeat = self.command(HEARTBEAT)
        self.published = tuple(self.prefix + name for name in _TOPICS)
        """Everything that the server publishes."""

    def command(self, name: str) -> str:
        """The topic of the command with this name."""
        return f"{self.prefix}command/{name}"


_TOPICS = {
    "availability": (True, '"online" or "offline" (plain text, by last will)'),
    "description": (True, "description of this server and its commands"),
    "state": (True, "state of the server: mode, fault, warnings, time, target and actual values"),
    "circuit": (True, "the active virtual circuit"),
    "types": (True, "the component types that a circuit may use, with ports and datasheet values"),
    "margins": (True, "whether the real valves are large and fast enough for the circuit, and the loop is stable"),
    "telemetry": (False, "decimated samples, several per message"),
    "event": (False, "faults, switches, warnings"),
    "answer": (False, "the answer to each command"),
}


def describe(
    rig: str,
    version: str,
    *,
    channels: dict[str, ChannelDescription],
    inputs: dict[str, InputDescription],
    valves: dict[str, ValveDescription],
    command_lifetime: float | None = None,
    operator: OperatorDescription | None = None,
) -> Description:
    """The description topic of a rig, with all commands and topics of the protocol."""
    topics = Topics(rig)
    return Description(
        rig=rig,
        version=version,
        command_lifetime=command_lifetime,
        operator=operator or OperatorDescription(),
        channels=channels,
        inputs=inputs,
        valves=valves,
        commands={
            name: CommandDescription(
                topic=topics.command(name), description=_first_line(model), payload_schema=model.model_json_schema()
            )
            for name, model in COMMANDS.items()
        },
        topics={
            name: TopicDescription(topic=topics.prefix + name, retained=retained, description=text)
            for name, (retained, text) in _TOPICS.items()
        },
    )


def schemas() -> dict[str, dict[str, Any]]:
    """JSON Schema of every message, by the last levels of its topic: ``command/arm`` ... ``state``, ``answer``."""
    commands = {f"command/{name}": model.model_json_schema() for name, model in COMMANDS.items()}
    commands[f"command/{HEARTBEAT}"] = OperatorHeartbeat.model_json_schema()
    return commands | {name: model.model_json_schema(mode="serialization") for name, model in PUBLISHED.items()}


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_files() -> dict[str, str]:
    """The schemas as files: name -> text. ``docs/schemas/`` holds a copy, so that every change is reviewed."""
    return {
        f"{name}.json": json.dumps({"$schema": DIALECT, **schema}, indent=2, ensure_ascii=False) + "\n"
        for name, schema in schemas().items()
    }


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").splitlines()[0]
