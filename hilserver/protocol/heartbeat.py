"""The heartbeat of an operator: it shows that the client that has armed or started a rig is alive."""

from pydantic import BaseModel, ConfigDict, Field

from hilserver.protocol.commands import Id


class OperatorHeartbeat(BaseModel):
    """A heartbeat of a client, or the message that its connection has ended. It is never answered.

    Sent on ``hil/<rig>/command/heartbeat``, not retained, several times within `lost_after` of the description. As the
    last will of the client's connection, with ``lost``, it is sent by the broker.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, defer_build=True)

    client: Id = Field(description="name of the client, as in the key `client` of its `arm` and `start`")
    connection: Id = Field(
        description="identifies the client's connection: the last will of an older one does not count"
    )
    lost: bool = Field(default=False, description="true: this connection has ended (last will), or the client ends it")

    def payload(self) -> bytes:
        """The message as JSON in UTF-8."""
        return self.model_dump_json().encode()
