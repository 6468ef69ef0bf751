"""Access rights at the embedded broker: the server, operators (who may command) and viewers (who only read).

Hashed passwords are in a file made by mosquitto_passwd; the rig file lists the operators.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from hilserver.errors import HilserverError, did_you_mean, shown
from hilserver.protocol.address import require_private
from hilserver.protocol.topics import Topics

SERVER = "hilserver"
"""The server's own account; its password is generated at each start."""
ITERATIONS = 101
"""As in mosquitto_passwd; for the server's password, which is random and long, one would be sufficient."""


class AccountsError(HilserverError):
    """An unusable file of accounts or list of operators."""


@dataclass(frozen=True)
class Accounts:
    """The accounts of one rig's embedded broker. ``file``: made by mosquitto_passwd, private."""

    rig: str
    file: Path
    operators: tuple[str, ...] = ()
    server_password: str = field(default_factory=secrets.token_urlsafe, repr=False)

    def passwords(self) -> str:
        """mosquitto's password file: the accounts and the server's own. Raises AccountsError or LoginError."""
        require_private(self.file)
        try:
            lines = [line.strip() for line in self.file.read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise AccountsError(f"{self.file}: can't be read: {error}.") from None
        names = []
        for number, line in enumerate(lines, 1):
            name, colon, hashed = line.partition(":")
            if not (name and colon and hashed.startswith(("$6$", "$7$"))):
                made = f"mosquitto_passwd {self.file} NAME"
                raise AccountsError(f"{self.file}: line {number} is not NAME:HASH as made by: {made}")
            names.append(name)
        if SERVER in names:
            raise AccountsError(f"{self.file}: the account {SERVER} is the server's own: give it another name.")
        for operator in self.operators:
            if operator not in names:
                hint = did_you_mean(operator, names)
                raise AccountsError(f"mqtt.operators: {shown(operator)} has no account in {self.file}.{hint}")
        return "\n".join((*lines, f"{SERVER}:{hashed_password(self.server_password)}", ""))

    def rules(self) -> str:
        """mosquitto's access control list: everything that is not listed is forbidden."""
        topics = Topics(self.rig)
        lines = [f"pattern read {topic}" for topic in topics.published]
        lines += ["", f"user {SERVER}", f"topic read {topics.commands}"]
        lines += [f"topic write {topic}" for topic in topics.published]
        for operator in self.operators:
            lines += ["", f"user {operator}", f"topic write {topics.commands}"]
        return "\n".join((*lines, ""))


def hashed_password(password: str) -> str:
    """The hash as in mosquitto's password file: PBKDF2 with SHA-512."""
    salt = os.urandom(12)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS)
    return f"$7${ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"
