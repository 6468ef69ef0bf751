"""Commands from their arrival to their answer: which are refused, which wait, and which go first.

``stop``, ``disarm`` and ``trip`` only make the rig safer. They are carried out whatever their id, expiry or payload,
and wait for no other command. They arrive over two connections, of which one, the priority connection, carries nothing
else; the first copy of each is carried out. Until the second copy has arrived, behind everything that was sent before,
all other commands are refused: nothing that was sent before a stop may undo it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from hilserver.errors import Problem, shown
from hilserver.protocol.commands import COMMANDS, Command
from hilserver.protocol.parsing import PayloadError, leading_id, read_command
from hilserver.protocol.published import Answer, refusal
from hilserver.protocol.stopping import STOPPING

_log = logging.getLogger(__name__)

WAITING_LIMIT = 32
"""Largest number of other commands that wait; and of identical stopping commands that are answered one by one."""
RATE, BURST = 300.0, 1000.0
"""Other commands per second that are read, and how many may arrive at once. More are discarded unread, and counted."""
COPY_TIMEOUT, PRIORITY_TIMEOUT = 10.0, 0.5
"""Seconds after which the second copy of a stopping command counts as lost by the broker. The time is shorter for a
copy over the priority connection, where nothing delays it: a copy that arrives later is treated as another command."""
REMEMBERED_IDS = 1000
LONGEST_EXPIRY = 366 * 24 * 3600.0


class Commands(Protocol):
    """Carries out commands; `hilserver.service.executor.Executor` implements it."""

    async def execute(self, command: Command) -> Answer:
        """Carry out one command, or refuse it in the answer.

        Called for one command at a time, in order of arrival; and for one of STOPPING at the same time.
        """


@dataclass(frozen=True)
class Reply:
    """The response topic of an MQTT 5 client."""

    topic: str
    correlation: bytes | None


@dataclass(frozen=True)
class Arrival:
    """A message on a command's topic. ``name``: of the command; ``priority``: over that connection."""

    name: str
    payload: bytes
    retained: bool
    reply: Reply | None
    priority: bool = False


_Asked = tuple[Command, Reply | None]


@dataclass(frozen=True, slots=True)
class _Answered:
    """An answered command in compact form: a thousand are kept, some of them with whole circuits."""

    name: str
    expires: float | None
    digest: bytes
    answer: bytes


def _digest(command: Command) -> bytes:
    """A hash of the command without its expiry."""
    content = command.model_dump(mode="json", exclude={"expires"})
    return hashlib.sha256(f"{command.name} {json.dumps(content, sort_keys=True)}".encode()).digest()


async def _unknown_sender() -> str:
    return "The broker's log shows which client sends them."


class Inbox:
    """The commands of one server. ``answer`` publishes an answer, ``report`` a warning for all; both return at once.

    ``clock`` is the system clock that commands expire by. With a ``lifetime`` (s), commands other than the stopping
    ones must have an id and expire within it: then none can be replayed.
    """

    def __init__(
        self,
        rig: str,
        commands: Commands,
        answer: Callable[[Answer, Reply | None], None],
        *,
        clock: Callable[[], float] = time.time,
        lifetime: float | None = None,
    ) -> None:
        self.report: Callable[[str], None] = _log.warning
        self.blame: Callable[[], Awaitable[str]] = _unknown_sender
        """Finds out who sends a flood, and acts against it if possible; returns a sentence on the result."""
        self._rig = rig
        self._commands = commands
        self._publish = answer
        self._clock = clock
        self._lifetime = lifetime
        self._waiting: asyncio.Queue[_Asked] = asyncio.Queue()
        self._stops: dict[str, list[_Asked]] = {}
        self._stop_asked = asyncio.Event()
        self._answered: OrderedDict[str, _Answered] = OrderedDict()
        self._tokens, self._refilled = BURST, time.monotonic()
        self._discarded: Counter[str] = Counter()
        self._any_discarded = asyncio.Event()
        self._reported_at = -float("inf")
        self.forget_copies()

    def forget_copies(self) -> None:
        """A new connection: copies of stopping commands from before will not arrive any more."""
        self._ahead: Counter[str] = Counter()
        self._ahead_since = -float("inf")

    async def work(self) -> None:
        """Carry out what arrives, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._carry_out_stops())
            tasks.create_task(self._carry_out_others())
            tasks.create_task(self._report_discarded())

    # -- arrival ------------------------------------------------------------------------------------------------------

    def accept(self, message: Arrival) -> None:
        """Queue a command, or refuse it."""
        if message.retained and not message.payload:
            return  # a retained command is being removed
        if message.name in STOPPING:
            if self._is_first_copy(message):
                self._accept_stop(message)
        elif message.priority:
            pass  # nothing else is subscribed there
        elif self._is_too_fast():
            self.discard(message.name)
        else:
            self._accept_other(message)

    def refuse_waiting(self, reason: str) -> None:
        """Refuse all commands that wait."""
        while not self._waiting.empty():
            other, reply = self._waiting.get_nowait()
            self._refuse(other.name, other.id, reason, reply)

    def discard(self, name: str) -> None:
        """Count a command that was not read."""
        self._discarded[name if name in COMMANDS else "(unknown)"] += 1
        self._any_discarded.set()

    def _is_first_copy(self, message: Arrival) -> bool:
        """Whether this copy of a stopping command arrives before the one over the other connection."""
        if time.monotonic() > self._ahead_since + COPY_TIMEOUT:
            self._ahead.clear()
        before = self._ahead[message.name]  # copies over the priority connection, minus those over the common one
        if message.priority and time.monotonic() > self._ahead_since + PRIORITY_TIMEOUT:
            before = max(before, 0)
        self._ahead[message.name] = before + (1 if message.priority else -1)
        first = before >= 0 if message.priority else before <= 0
        if first:
            self._ahead_since = time.monotonic()
        return first

    def _stop_overtaking(self) -> str | None:
        """The stopping command before which the arriving message was sent."""
        if time.monotonic() > self._ahead_since + COPY_TIMEOUT:
            return None
        return next((name for name in STOPPING if self._ahead[name] > 0), None)

    def _accept_stop(self, message: Arrival) -> None:
        """Refuse waiting commands: nothing sent before a stopping command may undo it. Identical ones count as one."""
        try:
            command = read_command(message.name, message.payload)
        except PayloadError as error:
            command = COMMANDS[message.name](id=error.id)
            if message.payload.strip():
                problem = error.problems[0]
                self._report_rarely(f"{message.name}: carried out although its payload is not valid: {problem}")
        if message.retained:
            self._report_rarely(f"{message.name}: {_RETAINED_STOP.format(topic=self._topic(message.name))}")
        self.refuse_waiting(_overtaken(message.name))
        asked = self._stops.setdefault(message.name, [])
        if len(asked) < WAITING_LIMIT:  # the others are carried out with these, without an answer of their own
            asked.append((command, message.reply))
        self._stop_asked.set()

    def _accept_other(self, message: Arrival) -> None:
        name, payload, reply = message.name, message.payload, message.reply
        try:
            if message.retained:
                raise PayloadError([Problem(_RETAINED.format(topic=self._topic(name)))], leading_id(payload))
            command = read_command(name, payload)
        except PayloadError as error:
            self._answer(refusal(name, error.id, error.problems, self._clock()), reply)
            return
        if stop := self._stop_overtaking():
            self._refuse(name, command.id, _overtaken(stop), reply)
        elif (waiting := self._waiting.qsize()) >= WAITING_LIMIT:
            busy = f"busy: {waiting} commands are already waiting. Send it again when they are answered."
            self._refuse(name, command.id, busy, reply)
        else:
            self._waiting.put_nowait((command, reply))

    def _topic(self, name: str) -> str:
        return f"hil/{self._rig}/command/{name}"

    def _is_too_fast(self) -> bool:
        """Whether more commands arrive than are read (token bucket)."""
        now = time.monotonic()
        self._tokens = min(BURST, self._tokens + RATE * (now - self._refilled))
        self._refilled = now
        if self._tokens < 1.0:
            return True
        self._tokens -= 1.0
        return False

    def _report_rarely(self, text: str) -> None:
        """Report something about a stopping command, at most once per second, in case there is a flood of them."""
        if time.monotonic() > self._reported_at + 1.0:
            self._reported_at = time.monotonic()
            self.report(text)

    async def _report_discarded(self) -> None:
        while True:
            await self._any_discarded.wait()
            await asyncio.sleep(1.0)
            self._any_discarded.clear()
            (most, _), count = self._discarded.most_common(1)[0], self._discarded.total()
            self._discarded.clear()
            self.report(
                f"{count} commands were discarded unread: at most {RATE:g} per second are taken. Most of them were "
                f"{most}. {await self.blame()}"
            )

    # -- execution ----------------------------------------------------------------------------------------------------

    async def _carry_out_stops(self) -> None:
        while True:
            await self._stop_asked.wait()
            self._stop_asked.clear()
            while name := next((name for name in STOPPING if name in self._stops), None):
                asked = self._stops.pop(name)
                answer = await self._done(asked[0][0])
                for command, reply in asked:
                    self._answer(answer.model_copy(update={"id": command.id}), reply)

    async def _carry_out_others(self) -> None:
        while True:
            command, reply = await self._waiting.get()
            self._answer(await self.execute(command), reply)

    async def execute(self, command: Command) -> Answer:
        """Carry out a command other than the stopping ones, unless its id is known or it has expired."""
        if command.id in self._answered:
            return self._repeated(command)
        if problem := self._expiry_problem(command):
            return refusal(command.name, command.id, [problem], self._clock())
        answer = await self._done(command)
        if command.id is not None:
            self._answered[command.id] = _Answered(command.name, command.expires, _digest(command), answer.payload())
            self._forget()
        return answer

    async def _done(self, command: Command) -> Answer:
        try:
            return await self._commands.execute(command)
        except Exception as error:
            problem = f"internal error in hilserver: {type(error).__name__}: {error}. Please report it."
            _log.debug("command %s failed", command.name, exc_info=True)
            return refusal(command.name, command.id, [problem], self._clock())

    def _forget(self) -> None:
        """Forget the oldest ids, except those of commands that could still be replayed."""
        while len(self._answered) > REMEMBERED_IDS:
            oldest = next(iter(self._answered.values()))
            if self._lifetime is not None and oldest.expires is not None and oldest.expires >= self._clock():
                return
            self._answered.popitem(last=False)

    def _repeated(self, command: Command) -> Answer:
        assert command.id is not None
        self._answered.move_to_end(command.id)
        first = self._answered[command.id]
        answer = Answer.model_validate_json(first.answer)
        if first.digest != _digest(command):
            problem = (
                f"id: {shown(command.id)} was used before, for another command ({first.name}). "
                "Nothing was done: give each command a different id."
            )
            answer = refusal(command.name, command.id, [problem], self._clock())
        return answer.model_copy(update={"duplicate": True})

    def _expiry_problem(self, command: Command) -> str | None:
        """Why a command must not be carried out now: it has expired, or could be replayed later."""
        now, expires, lifetime = self._clock(), command.expires, self._lifetime
        if lifetime is not None and (command.id is None or expires is None):
            return (
                f"this server accepts only commands that have a new id and expire within {lifetime:g} s: "
                f"give id and expires (Unix time in s; the server's clock shows {now:.3f})."
            )
        if expires is None:
            return None
        if now > expires:
            return f"expires: {expires:.3f} is past: the server's clock shows {now:.3f} (Unix time in s)."
        if lifetime is not None and expires - now > lifetime:
            return (
                f"expires: {expires:.3f} is {expires - now:.0f} s after the server's clock, {now:.3f}: "
                f"this server accepts commands that expire within {lifetime:g} s."
            )
        if expires - now > LONGEST_EXPIRY:
            return (
                f"expires: {expires:.3f} is more than a year after the server's clock, {now:.3f}: "
                "it must be Unix time in seconds, not milliseconds."
            )
        return None

    # -- answers ------------------------------------------------------------------------------------------------------

    def _refuse(self, name: str, id: str | None, reason: str, reply: Reply | None) -> None:
        self._answer(refusal(name, id, [reason], self._clock()), reply)

    def _answer(self, answer: Answer, reply: Reply | None) -> None:
        if answer.ok:
            _log.info("%s: done%s", answer.command, " before (same id)" if answer.duplicate else "")
        else:
            _log.warning("command %s refused: %s", shown(answer.command), answer.reason)
        self._publish(answer, reply)


def _overtaken(name: str) -> str:
    return f"overtaken by a {name}."


_RETAINED = (
    "retained commands are refused: this one would be delivered each time the server connects. "
    "Remove it with: mosquitto_pub -r -n -t {topic}"
)
_RETAINED_STOP = (
    "this command is retained by the broker, which will deliver it each time the server connects. "
    "Remove it with: mosquitto_pub -r -n -t {topic}"
)
