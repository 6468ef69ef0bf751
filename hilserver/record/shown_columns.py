"""The columns of a log by the names under which they are shown and exported.

Most have the name that they have in the log. What the bridge of an actuator tracks is numbered there.
"""

from __future__ import annotations

from hilserver.record.format import LogHeader
from hilserver.rig.references import subtables
from hilserver.tick.hybrid.memory import STATES


def shown_columns(header: LogHeader) -> dict[str, str]:
    """The columns of the log, in their order, by the names under which they are shown.

    ``actuator.table.specimen_stiffness`` is the change of this value that is tracked, in standard deviations of its
    ``uncertainty`` in the rig file.
    """
    names = {
        f"actuator.{actuator}.memory_{STATES + 1 + k}": f"actuator.{actuator}.{value}"
        for actuator, table in subtables(header.configuration, "rig", "actuators").items()
        for k, value in enumerate(subtables({actuator: table}, actuator).get("uncertainty", ()))
    }
    taken = frozenset(header.columns)
    return {column if names.get(column, column) in taken else names[column]: column for column in header.columns}
