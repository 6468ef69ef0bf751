"""A running server for scripts and notebooks: commands as methods, the newest state, samples as arrays."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import numpy as np

from hilserver.client.place import where
from hilserver.client.session import RequestFailed, open_session
from hilserver.errors import HilserverError, did_you_mean
from hilserver.numerics.arrays import Floats
from hilserver.protocol import messages as m
from hilserver.units import unit_of_value

_Result = TypeVar("_Result")
Start = Literal["initial", "steady"]


class CommandRefused(HilserverError):
    """The server did not carry out a command. ``answer`` is what it said; nothing was changed."""

    def __init__(self, answer: m.Answer) -> None:
        self.answer = answer
        super().__init__(f"{answer.command} was refused: {answer.reason}")


@dataclass(frozen=True)
class Samples:
    """Recorded telemetry: ``time`` is Unix time in s; ``channels`` are SI values by name, NaN where none was valid."""

    time: Floats
    channels: Mapping[str, Floats]
    units: Mapping[str, str]

    def __getitem__(self, channel: str) -> Floats:
        if channel not in self.channels:
            raise KeyError(f"{channel} is not among the samples.{did_you_mean(channel, self.channels)}")
        return self.channels[channel]

    def __len__(self) -> int:
        return len(self.time)

    def __repr__(self) -> str:
        length = f"{self.time[-1] - self.time[0]:.4g} s" if len(self) else "nothing"
        return f"<{len(self)} samples, {length}: {', '.join(self.channels)}>"


def circuit_units(names: Iterable[str]) -> dict[str, str]:
    """SI units of the virtual circuit's values, as far as their names tell.

    >>> circuit_units(["circuit.supply.p", "circuit.pump.q_P", "p_A"])
    {'circuit.supply.p': 'Pa', 'circuit.pump.q_P': 'm^3/s'}
    """
    units = {name: unit_of_value(name.removeprefix("circuit.")) for name in names if name.startswith("circuit.")}
    return {name: unit for name, unit in units.items() if unit}


class Recorder:
    """Collects the telemetry of a server until `stop`; made by `Client.recorder`."""

    def __init__(self, channels: tuple[str, ...], units: Mapping[str, str]) -> None:
        self._wanted, self._units = channels, units
        self._batches: list[m.Telemetry] = []

    def take(self, batch: m.Telemetry) -> None:
        """Keep one telemetry message."""
        self._batches.append(batch)

    def newest(self, channel: str) -> float:
        """The newest value of a channel; NaN where there is none yet."""
        for batch in reversed(self._batches):
            for value in reversed(batch.channels.get(channel, ())):
                if value is not None:
                    return value
        return math.nan

    def samples(self) -> Samples:
        """What was collected so far."""
        batches = list(self._batches)
        names = self._wanted or tuple(dict.fromkeys(name for batch in batches for name in batch.channels))
        lengths = [max(map(len, batch.channels.values()), default=0) for batch in batches]
        sized = list(zip(batches, lengths, strict=True))
        times: list[Floats] = [batch.t0 + batch.dt * np.arange(float(n)) for batch, n in sized]
        channels = {name: _joined([_values(batch.channels.get(name), n) for batch, n in sized]) for name in names}
        units = {**circuit_units(names), **self._units}
        return Samples(_joined(times), channels, {name: units.get(name, "") for name in names})


def _values(values: tuple[float | None, ...] | None, length: int) -> Floats:
    return np.array(values if values is not None else [None] * length, dtype=np.float64)


def _joined(parts: list[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.empty(0)


class Client:
    """A running server. ``with connect() as rig:`` makes one and ends it.

    Every command is a method; it returns the server's answer, raises CommandRefused where the server refuses, and
    RequestFailed where it could not be asked. ``within`` is the time in s that one command may take.
    """

    def __init__(self, rig: str | None = None, broker: str | None = None, *, within: float = 5.0) -> None:
        self.rig, self.address = where(rig, broker)
        self.within = within
        self._stack = AsyncExitStack()
        self._loop = asyncio.new_event_loop()
        # A thread of its own: a notebook has an event loop already, and the connection must be kept alive meanwhile.
        self._thread = threading.Thread(target=self._loop.run_forever, name="hilserver client", daemon=True)
        self._thread.start()
        try:
            opening = open_session(self.address, self.rig, within=within, telemetry=True)
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
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # --- what there is -----------------------------------------------------------------------------------------------

    @property
    def online(self) -> bool:
        """Whether broker and server are there."""
        return self._session.online

    @property
    def state(self) -> m.State:
        """The newest state (at most half a second old). Raises RequestFailed where server or broker are away."""
        return self._present(self._session.state, "state")

    @property
    def circuit(self) -> m.CircuitStatus:
        """The virtual circuit that runs. Raises RequestFailed where server or broker are away."""
        return self._present(self._session.circuit, "circuit")

    @property
    def margins(self) -> m.Margins:
        """Whether the real valves can do what the circuit asks for. Raises RequestFailed."""
        return self._present(self._session.margins, "margins")

    @property
    def description(self) -> m.Description:
        """Channels with their units, inputs with their ranges, valves, commands. Raises RequestFailed."""
        return self._present(self._session.description, "description")

    def _present(self, message: _Result | None, what: str) -> _Result:
        session = self._session
        if not session.online:
            raise RequestFailed(session.trouble or f"the server of rig {self.rig} is {session.availability}.")
        if message is None:
            raise RequestFailed(f"the server of rig {self.rig} has not published its {what} yet.")
        return message

    def wait(self, condition: Callable[[m.State], bool], within: float = 10.0) -> m.State:
        """The first state for which the condition holds. Raises RequestFailed where there is none within so many s."""
        session = self._session

        def holds() -> bool:
            return session.online and session.state is not None and condition(session.state)

        try:
            self._do(session.until(holds, within))
        except TimeoutError:
            raise RequestFailed(f"rig {self.rig}: not as wanted within {within:g} s.") from None
        return self.state

    def recorder(self, *channels: str) -> _Recording:
        """Samples from now on: ``with rig.recorder("p_A") as recording: …``, then ``recording.samples()``.

        Without names all channels of the telemetry. Raises HilserverError for a channel that there is not.
        """
        known = self.description.channels
        for name in channels:
            if name not in known and not name.startswith("circuit."):  # those change with the circuit
                raise HilserverError(f'rig {self.rig} has no channel "{name}".{did_you_mean(name, known)}')
        return _Recording(self, Recorder(channels, {name: info.unit for name, info in known.items()}))

    def record(self, seconds: float, *channels: str) -> Samples:
        """The samples of so many seconds from now on; see `recorder`."""
        with self.recorder(*channels) as recording:
            time.sleep(seconds)
        return recording.samples()

    # --- commands ----------------------------------------------------------------------------------------------------

    def do(self, command: m.Command) -> m.Answer:
        """Carry out any command. Raises CommandRefused, RequestFailed."""
        answer = self._do(self._session.request(command, within=self.within))
        if not answer.ok:
            raise CommandRefused(answer)
        return answer

    def arm(self) -> m.Answer:
        """SAFE to ARMED: the valve stays at null."""
        return self.do(m.Arm())

    def disarm(self) -> m.Answer:
        """Back to SAFE."""
        return self.do(m.Disarm())

    def start(self) -> m.Answer:
        """ARMED to RUNNING: the virtual circuit drives the real valve."""
        return self.do(m.Start())

    def stop(self) -> m.Answer:
        """RUNNING to ARMED: the valve to null within its slew limit."""
        return self.do(m.Stop())

    def reset(self) -> m.Answer:
        """FAULT to SAFE, once the cause is gone."""
        return self.do(m.Reset())

    def trip(self) -> m.Answer:
        """FAULT at once, latched. It replaces no emergency stop."""
        return self.do(m.Trip())

    def set_input(self, name: str, value: float) -> m.Answer:
        """Set an operator input."""
        return self.do(m.SetInput(input=name, value=float(value)))

    def switch(
        self,
        component: str,
        set: Mapping[str, Any] | None = None,
        *,
        type: str | None = None,
        values: Mapping[str, Any] | None = None,
        start: Start = "initial",
    ) -> m.Answer:
        """Change datasheet values of a component (``set``), or put another type in its place (``type``, ``values``)."""
        change = {"set": set, "type": type, "values": values}
        given = {key: dict(value) if isinstance(value, Mapping) else value for key, value in change.items() if value}
        return self.do(m.Switch.model_validate({"component": component, "start": start, **given}))

    def switch_circuit(
        self, circuit: Mapping[str, Any] | None = None, *, file: str | None = None, start: Start = "initial"
    ) -> m.Answer:
        """Change the whole circuit: a table laid out like a circuit file, or the name of a file on the server."""
        return self.do(m.SwitchCircuit(circuit=dict(circuit) if circuit is not None else None, file=file, start=start))

    def strategy(self, valve: str, strategy: str) -> m.Answer:
        """Select how the virtual flow becomes the command of a real valve."""
        return self.do(m.SelectStrategy(valve=valve, strategy=strategy))

    def jog(self, valve: str, command: float) -> m.Answer:
        """Move a real valve by hand, -1 … 1; needs the strategy ``manual``."""
        return self.do(m.Jog(valve=valve, command=float(command)))

    def cycle(self, action: Literal["start", "stop"] = "start") -> m.Answer:
        """Start or stop the work cycle."""
        return self.do(m.Cycle(action=action))


class _Recording:
    """A recorder at work; ends with its ``with`` block."""

    def __init__(self, client: Client, recorder: Recorder) -> None:
        self._client, self._recorder = client, recorder
        self.samples = recorder.samples

    def __enter__(self) -> Self:
        self._client._session.listeners.append(self._recorder.take)
        return self

    def __exit__(self, *error: object) -> None:
        self._client._session.listeners.remove(self._recorder.take)


def connect(rig: str | None = None, broker: str | None = None, *, within: float = 5.0) -> Client:
    """Connect to a running server.

    ``broker``: ``host:port``, or a TOML file with address and log-in; without one the server that runs on this machine,
    called ``rig`` if there are several. ``within``: time in s for the connection, and for each command's answer. Raises
    HilserverError where that names no server, RequestFailed where it can't be reached.
    """
    return Client(rig, broker, within=within)
