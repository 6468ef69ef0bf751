"""The description topic of a rig, and the JSON Schema of every message."""

import json
from typing import Any

from pydantic import BaseModel

from hilserver.protocol.commands import COMMANDS
from hilserver.protocol.driven import ActuatorDescription, ValveDescription
from hilserver.protocol.heartbeat import OperatorHeartbeat
from hilserver.protocol.published import (
    PUBLISHED,
    ChannelDescription,
    CommandDescription,
    Description,
    InputDescription,
    OperatorDescription,
    TopicDescription,
)
from hilserver.protocol.topics import HEARTBEAT, TOPICS, Topics


def describe(
    rig: str,
    version: str,
    *,
    channels: dict[str, ChannelDescription],
    inputs: dict[str, InputDescription],
    valves: dict[str, ValveDescription],
    actuators: dict[str, ActuatorDescription] | None = None,
    command_lifetime: float | None = None,
    operator: OperatorDescription | None = None,
    reactions: int = 0,
    playouts: int = 0,
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
        actuators=actuators or {},
        reactions=reactions,
        playouts=playouts,
        commands={
            name: CommandDescription(
                topic=topics.command(name), description=_first_line(model), payload_schema=model.model_json_schema()
            )
            for name, model in COMMANDS.items()
        },
        topics={
            name: TopicDescription(topic=topics.prefix + name, retained=retained, description=text)
            for name, (retained, text) in TOPICS.items()
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
