"""The base of everything that the server publishes."""

from pydantic import BaseModel, ConfigDict


class Published(BaseModel):
    """A message of the server. Numbers that are not finite are written as null, since JSON can't represent them.

    Readers ignore unknown keys, so that an older client understands a newer server.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="null", defer_build=True)

    def payload(self) -> bytes:
        """The message as JSON in UTF-8."""
        return self.model_dump_json().encode()
