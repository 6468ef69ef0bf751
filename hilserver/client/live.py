"""A running server for scripts and notebooks: commands as methods, the newest state, samples as arrays."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from hilserver.client.samples import Samples, TelemetryRecorder
from hilserver.client.session import RequestFailed, open_session
from hilserver.errors import HilserverError, did_you_mean
from hilserver.protocol import commands
from hilserver.protocol.place import where
from hilserver.protocol.published import Answer, CircuitStatus, Description, MarginStatus, ServerState

_Result = TypeVar("_Result")
StartFrom = Literal["initial", "steady"]


class CommandRefused(HilserverError):
    """The server did not carry out a command. ``answer`` gives the reasons; nothing was changed."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        super().__init__(f"{answer.command} was refused: {answer.reason}")


class Client:
    """A running server. ``with connect() as rig:`` opens and closes the connection.

    Common commands are methods, `do` carries out any: they return the server's answer, and raise CommandRefused where
    the server refuses, RequestFailed where it can't be reached. ``within``: time allowed for the connection and for one
    command, s; by default 5 s, and for ``arm`` 20 s. ``hangs_after``: see `connect`.
    """

    def __init__(
        self,
        rig: str | None = None,
        broker: str | None = None,
        *,
        within: float | None = None,
        hangs_after: float | None = None,
    ) -> None:
        self.rig, self.address = where(rig, broker)
        self.within, self.hangs_after = within, hangs_after
        self._last_used, self._in_use = time.monotonic(), 0
        self._stack = AsyncExitStack()
        self._loop = asyncio.new_event_loop()
        # A separate thread, because a notebook already has an event loop and the connection has to stay alive.
        self._thread = threading.Thread(target=self._loop.run_forever, name="hilserver client", daemon=True)
        self._thread.start()
        try:
            patience = commands.Command.patience if within is None else within
            opening = open_session(self.address, self.rig, within=patience, telemetry=True, alive=self._is_used)
            self._session = self._do(self._stack.enter_async_context(opening))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection. May be called more than once."""
        if self._thread.is_alive():
            self._do(self._stack.aclose())
            self._do(self._loop.shutdown_default_executor())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __repr__(self) -> str:
        state = self._session.state
        mode = state.mode if self.online and state is not None else "offline"
        return f"<rig {self.rig} at {self.address}: {mode}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _do(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        with self._use():
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    @contextmanager
    def _use(self) -> Iterator[None]:
        """The program is waiting for this connection: it does not hang."""
        self._in_use += 1
        try:
            yield
        finally:
            self._in_use -= 1
            self._last_used = time.monotonic()

    def _is_used(self) -> bool:
        """Whether the program counts as alive; the thread that sends the heartbeats continues if the program hangs."""
        if self.hangs_after is None or self._in_use:
            return True
        return time.monotonic() - self._last_used < self.hangs_after

    # --- what there is -----------------------------------------------------------------------------------------------

    @property
    def online(self) -> bool:
        """Whether broker and server are online."""
        return self._session.online

    @property
    def state(self) -> ServerState:
        """The newest state (at most half a second old). Raises RequestFailed if server or broker are offline."""
        return self._present(self._session.state, "state")

    @property
    def circuit(self) -> CircuitStatus:
        """The running virtual circuit. Raises RequestFailed if server or broker are offline."""
        return self._present(self._session.circuit, "circuit")

    @property
    def margins(self) -> MarginStatus:
        """Whether the real valves are sufficient for the circuit, and the loop is stable. Raises RequestFailed."""
        return self._present(self._session.margins, "margins")

    @property
    def description(self) -> Description:
        """Channels with their units, inputs with their ranges, valves, commands. Raises RequestFailed."""
        return self._present(self._session.description, "description")

    def _present(self, message: _Result | None, what: str) -> _Result:
        session, self._last_used = self._session, time.monotonic()
        if not session.online:
            raise RequestFailed(session.trouble or f"the server of rig {self.rig} is {session.availability}.")
        if message is None:
            raise RequestFailed(f"the server of rig {self.rig} has not published its {what} yet.")
        return message

    def wait(self, condition: Callable[[ServerState], bool], within: float = 10.0) -> ServerState:
        """The first state that meets the condition. Raises RequestFailed if there is none within ``within`` s."""
        session = self._session

        def holds() -> bool:
            return session.online and session.state is not None and condition(session.state)

        try:
            self._do(session.until(holds, within))
        except TimeoutError:
            failed = f"rig {self.rig}: the condition was not met within {within:g} s"
            raise RequestFailed(f"{failed}; {self._situation()}.") from None
        return self.state

    def _situation(self) -> str:
        """What the server does instead of meeting a condition: its mode with fault and warnings, or why it is away."""
        session = self._session
        if not session.online or session.state is None:
            return session.trouble.rstrip(".") if session.trouble else f"the server is {session.availability}"
        state = session.state
        cause = f": {state.fault}" if state.fault else ""
        warnings = f" (warnings: {'; '.join(state.warnings)})" if state.warnings else ""
        return f"the server is in {state.mode}{cause.rstrip('.')}{warnings}"

    def recorder(self, *channels: str) -> _Recording:
        """Record samples from now on: ``with rig.recorder("p_A") as recording: …``, then ``recording.samples()``.

        Without names, all channels of the telemetry. Raises HilserverError for an unknown channel.
        """
        known = self.description.channels
        for name in channels:
            if name not in known and not name.startswith("circuit."):  # those change with the circuit
                raise HilserverError(f'rig {self.rig} has no channel "{name}".{did_you_mean(name, known)}')
        return _Recording(self, TelemetryRecorder(channels, {name: info.unit for name, info in known.items()}))

    def record(self, seconds: float, *channels: str) -> Samples:
        """Record for this time, s; see `recorder`."""
        with self.recorder(*channels) as recording, self._use():
            time.sleep(seconds)
        return recording.samples()

    # --- commands ----------------------------------------------------------------------------------------------------

    def do(self, command: commands.Command) -> Answer:
        """Carry out any command. Raises CommandRefused, RequestFailed."""
        answer = self._do(self._session.request(command, within=self.within))
        if not answer.ok:
            raise CommandRefused(answer)
        return answer

    def arm(self) -> Answer:
        """SAFE to ARMED: the valve stays at null."""
        return self.do(commands.Arm())

    def disarm(self) -> Answer:
        """Back to SAFE."""
        return self.do(commands.Disarm())

    def start(self) -> Answer:
        """ARMED to RUNNING: the virtual circuit drives the real valve."""
        return self.do(commands.Start())

    def stop(self) -> Answer:
        """RUNNING to ARMED: valves to null within their slew limit, actuators to their safe displacement."""
        return self.do(commands.Stop())

    def reset(self) -> Answer:
        """FAULT to SAFE, once the cause is removed."""
        return self.do(commands.Reset())

    def trip(self) -> Answer:
        """FAULT at once, latched. It does not replace an emergency stop."""
        return self.do(commands.Trip())

    def set_input(self, name: str, value: float) -> Answer:
        """Set an operator input."""
        return self.do(commands.SetInput(input=name, value=float(value)))

    def switch(
        self,
        component: str,
        set: Mapping[str, Any] | None = None,
        *,
        type: str | None = None,
        values: Mapping[str, Any] | None = None,
        start: StartFrom = "initial",
    ) -> Answer:
        """Change datasheet values of a component (``set``), or replace it by another type (``type``, ``values``)."""
        change = {"set": set, "type": type, "values": values}
        given = {key: dict(value) if isinstance(value, Mapping) else value for key, value in change.items() if value}
        return self.do(commands.Switch.model_validate({"component": component, "start": start, **given}))

    def switch_circuit(
        self, circuit: Mapping[str, Any] | None = None, *, file: str | None = None, start: StartFrom = "initial"
    ) -> Answer:
        """Replace the whole circuit: by a table laid out like a circuit file, or by a file on the server."""
        return self.do(
            commands.SwitchCircuit(circuit=dict(circuit) if circuit is not None else None, file=file, start=start)
        )

    def strategy(self, valve: str, strategy: str) -> Answer:
        """Select the strategy that turns the virtual flow into the command of a real valve."""
        return self.do(commands.SelectStrategy(valve=valve, strategy=strategy))

    def actuator_strategy(self, actuator: str, strategy: str) -> Answer:
        """Select the strategy by which an actuator whose position is controlled follows the virtual circuit."""
        return self.do(commands.SelectStrategy(actuator=actuator, strategy=strategy))

    def jog(self, valve: str, command: float) -> Answer:
        """Move a real valve manually, -1 … 1; requires the strategy ``manual``."""
        return self.do(commands.Jog(valve=valve, command=float(command)))

    def jog_actuator(self, actuator: str, command: float) -> Answer:
        """Move an actuator manually, at this fraction of its jog speed, -1 … 1; requires the strategy ``manual``."""
        return self.do(commands.Jog(actuator=actuator, command=float(command)))

    def cycle(self, action: Literal["start", "stop"] = "start") -> Answer:
        """Start or stop the work cycle."""
        return self.do(commands.Cycle(action=action))


class _Recording:
    """A running recorder; it ends with its ``with`` block."""

    def __init__(self, client: Client, recorder: TelemetryRecorder) -> None:
        self._client, self._recorder = client, recorder
        self.samples = recorder.samples

    def __enter__(self) -> Self:
        self._client._session.listeners.append(self._recorder.take)
        return self

    def __exit__(self, *error: object) -> None:
        self._client._session.listeners.remove(self._recorder.take)


def connect(
    rig: str | None = None,
    broker: str | None = None,
    *,
    within: float | None = None,
    hangs_after: float | None = None,
) -> Client:
    """Connect to a running server.

    ``broker``: ``host:port``, or a TOML file with address and login; without one the server that runs on this computer,
    called ``rig`` if there are several. ``within``: time in s for the connection, and for each command's answer; by
    default 5 s, and 20 s for ``arm``. ``hangs_after``: time in s after which a program that has not used the connection
    (with any command, or by reading ``state``) counts as hanging, so that a rig that requires the heartbeat of its
    operator stops; None: never, as in a notebook, where a person reads between two cells. Raises HilserverError if no
    such server is found, RequestFailed where it can't be reached.
    """
    return Client(rig, broker, within=within, hangs_after=hangs_after)
