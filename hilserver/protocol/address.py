"""The address of the broker and the login: secrets are in files that no other user may read."""

from __future__ import annotations

import ipaddress
import os
import pwd
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StringConstraints, ValidationError, model_validator

from hilserver.errors import ConfigurationError, HilserverError, Problem, problems_of, shown
from hilserver.toml import read_toml

Text = Annotated[str, StringConstraints(min_length=1)]


class LoginError(HilserverError):
    """A password, key or certificate that can't be used; names the file and states what would be right."""


class BrokerAddress(BaseModel):
    """Address of the MQTT broker and login. The files contain secrets: no other user may read them."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, defer_build=True)

    host: Text = Field(default="127.0.0.1", description="broker's host")
    port: StrictInt = Field(default=1883, ge=1, le=65535, description="broker's port; 8883 is usual with TLS")
    user: Text | None = Field(default=None, description="user name for the login")
    password_file: Path | None = Field(default=None, description="private file whose first line is the password")
    ca_file: Path | None = Field(default=None, description="trusted certificates (PEM); if given, TLS is used")
    cert_file: Path | None = Field(default=None, description="own certificate (PEM), for a broker that requires one")
    key_file: Path | None = Field(default=None, description="private key (PEM) of cert_file")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.password_file is not None and self.user is None:
            raise ValueError("password_file needs user, the name that the password belongs to")
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together: give both or neither")
        if self.cert_file is not None and self.ca_file is None:
            raise ValueError("cert_file needs ca_file, the certificates with which the broker's is checked")
        return self

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def beside(self, file: Path) -> Self:
        """The same address, with relative paths taken from the folder of ``file``."""
        names = ("password_file", "ca_file", "cert_file", "key_file")
        paths = {name: file.absolute().parent / path for name in names if (path := getattr(self, name)) is not None}
        return self.model_copy(update=paths)

    @property
    def is_local(self) -> bool:
        """Whether the broker is on this computer, so that no message leaves it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def password(self) -> str | None:
        """The password, None if there is none. Raises LoginError if it can't be read, or others can read it."""
        return None if self.password_file is None else read_password(self.password_file)

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context (1.2 or newer, the broker's name is checked), None without TLS. Raises LoginError."""
        if self.ca_file is None:
            return None
        file = self.ca_file
        try:
            context = ssl.create_default_context(cafile=file)
            if self.cert_file is not None and self.key_file is not None:
                file = self.cert_file
                require_private(self.key_file)
                context.load_cert_chain(self.cert_file, self.key_file, password=_no_passphrase)
        except OSError as error:
            reason = (
                f"contains no usable certificate or key ({error.reason})"
                if isinstance(error, ssl.SSLError)
                else error.strerror
            )
            raise LoginError(f"{file}: {reason}.") from None
        return context

    def check(self) -> None:
        """Raise LoginError where a file is missing, unusable, or not private."""
        self.password()
        self.tls()

    def weaknesses(self) -> Iterator[str]:
        """Possible actions of others on the network, in sentences; none if the broker is on this computer."""
        if self.is_local:
            return
        if self.ca_file is None:
            yield f"MQTT broker {self}: no TLS. Others on the network can read and forge commands. Set mqtt.ca_file."
        if self.user is None and self.cert_file is None:
            yield f"MQTT broker {self}: no login. It can't tell who may command. Set mqtt.user and mqtt.password_file."


def read_address(file: Path) -> tuple[str | None, BrokerAddress]:
    """Read a login file: TOML with the keys of a BrokerAddress and, where it is for one rig only, ``rig``.

    Returns the rig's name (None if there is none) and the address. The files that it names are in its folder. Raises
    ConfigurationError.
    """
    table = read_toml(file)
    rig = table.pop("rig", None)
    if rig is not None and not isinstance(rig, str):
        raise ConfigurationError([Problem(f"{shown(rig)} is not the name of a rig.", "rig", str(file))])
    try:
        return rig, BrokerAddress.model_validate(table).beside(file)
    except ValidationError as error:
        raise ConfigurationError(problems_of(error, table, file=str(file), names=BrokerAddress.model_fields)) from None


def read_password(file: Path) -> str:
    """The first line of a private file. Raises LoginError if it can't be read, is empty, or others may read it."""
    require_private(file)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LoginError(f"{file}: can't be read: {error}.") from None
    if not lines or not lines[0]:
        raise LoginError(f"{file}: its first line, the password, is empty.")
    return lines[0]


def require_private(file: Path) -> None:
    """Raise LoginError if users other than its owner and group may read this file, or others than its owner write it.

    Its owner must be this user or root.
    """
    try:
        status = file.stat()
    except OSError as error:
        raise LoginError(f"{file}: {error.strerror}.") from None
    if not stat.S_ISREG(status.st_mode):
        raise LoginError(f"{file}: is not a file.")
    if wrong := stat.S_IMODE(status.st_mode) & (stat.S_IRWXO | stat.S_IWGRP):
        what = "others may read it" if wrong & stat.S_IROTH else "users other than its owner may change it"
        raise LoginError(f"{file}: contains a secret, and {what}. Fix it with: chmod 640 {file}")
    if status.st_uid not in (0, os.geteuid()) and os.geteuid() != 0:
        raise LoginError(
            f"{file}: contains a secret and belongs to {_user(status.st_uid)}: it must belong to you, or to root."
        )


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _no_passphrase() -> str:
    """Called where the key is encrypted, instead of a prompt at a terminal that a service does not have."""
    raise LoginError("key_file: the key has a passphrase. Use one without, in a file that only hilserver can read.")
