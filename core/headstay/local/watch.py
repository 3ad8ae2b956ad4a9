"""One server over its restarts: started, watched, started again when it dies, and ended with all its processes."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from headstay.errors import LocalError
from headstay.local import state as states
from headstay.local import warm as warming
from headstay.local.client import Server, Traits
from headstay.local.home import Home
from headstay.local.log import MARK, Say, append, keep_short, reason
from headstay.local.process import Process, identify, kill_rest, listens, on_signals, signal_group
from headstay.local.state import Phase, State

POLL = 0.1  # seconds between two looks at the child
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOKS = 10  # how often its health is asked for, in the time after which it counts as hung


class _Stopped(Exception):  # noqa: N818 - a wish, not a fault
    """The user wants the server to end."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for what.

    Attributes:
        ready: Seconds until a started server must say that it is well.
        stop: Seconds between SIGTERM and SIGKILL.
        late: Seconds beyond these after which a supervisor that was told to end is killed.
        backoff: Seconds to wait before each start again; there are as many tries as there are numbers.
        steady: Seconds of good service after which the tries are counted anew.
        hung: Seconds without an answer about its health after which a running server is started again; and those in
            which a server that was started again may warm the heads that were warm.
    """

    ready: float = 300.0
    stop: float = 10.0
    late: float = 10.0
    backoff: Sequence[float] = (1.0, 2.0, 4.0, 8.0, 16.0)
    steady: float = 60.0
    hung: float = 120.0


@dataclass(frozen=True, slots=True)
class Service:
    """What is to be kept running.

    Attributes:
        command: Returns the program and arguments for a port.
        environment: The environment that it starts in.
        model: What requests call its model.
        device: What it runs on, in words.
    """

    command: Callable[[int], Sequence[str]]
    environment: Mapping[str, str]
    model: str
    device: str


class Supervisor:
    """One server over its restarts."""

    def __init__(self, home: Home, service: Service, say: Say, port: int, patience: Patience) -> None:
        self._home = home
        self._service = service
        self._say = say
        self._port = port
        self._patience = patience
        self._server = Server(f"http://127.0.0.1:{port}")
        self._child: subprocess.Popen[bytes] | None = None
        self._signals = 0
        self._asks = False
        self._told: int | None = None
        self._restarts = 0
        self._traits = Traits()
        itself = identify(os.getpid())
        if itself is None:
            raise LocalError("/proc cannot be read, so the server could not be told from other processes")
        self._itself = itself

    def run(self) -> None:
        """Start, watch, and end.

        Raises:
            LocalError: The server does not start, dies again and again, or cannot be watched.
        """
        phase: Phase = "stopped"
        message = ""
        with on_signals(_ENDING, self._on_signal):
            try:
                self._start()
                self._until_ready()
                self._ready()
                self._watch()
            except _Stopped:
                self._say("stopping")
            except LocalError as problem:
                phase, message = "failed", str(problem)
                raise
            except Exception as problem:
                phase, message = "failed", f"the supervisor failed: {type(problem).__name__}: {problem}"
                raise LocalError(message) from problem
            finally:
                self._end()
                self._write(phase, message)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Tell the server to end at the first signal, and kill it at the second: it may take its time with both."""
        self._signals += 1
        if self._signals == 1:
            self._tell_to_end()
            if self._asks:
                raise _Stopped
        elif self._child is not None:
            signal_group(self._child.pid, signal.SIGKILL)

    def _tell_to_end(self) -> None:
        """Send SIGTERM once: a second one would break off vLLM's own clearing up."""
        if self._child is not None and self._told != self._child.pid:
            self._told = self._child.pid
            signal_group(self._child.pid, signal.SIGTERM)

    @contextmanager
    def _asking(self) -> Generator[None]:
        """Let a signal break off the block, in which the server is waited for."""
        self._asks = True
        try:
            if self._signals:
                raise _Stopped
            yield
        finally:
            self._asks = False

    def _sleep(self, seconds: float) -> None:
        """Wait, but not for longer than the user wants the server."""
        until = time.monotonic() + seconds
        while not self._signals and (left := until - time.monotonic()) > 0:
            time.sleep(min(POLL, left))
        if self._signals:
            raise _Stopped

    def _start(self) -> None:
        """Start the server's process.

        Raises:
            LocalError: It cannot be started: its interpreter or its folder is gone, or there is no room for a log.
        """
        if self._signals:
            raise _Stopped
        command = list(self._service.command(self._port))
        try:
            log = append(self._home.server_log)
            try:
                with contextlib.suppress(OSError):  # a full disk does not keep the server from running
                    os.write(log, f"{MARK}{self._restarts + 1} ---\n".encode())
                self._child = subprocess.Popen(  # noqa: S603 - our own command, no shell
                    command,
                    env=dict(self._service.environment),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    cwd=self._home.run,
                )
            finally:
                os.close(log)
        except OSError as problem:
            named = problem.filename or command[0]
            raise LocalError(f"the server cannot be started: {named}: {problem.strerror or problem}") from problem
        if self._restarts == 0:
            self._write("starting")

    def _is_up(self) -> bool:
        """Tell whether the server is well. Nothing is sent to the port before it is seen to be the server's own.

        Raises:
            LocalError: Another program listens there, so the server never will.
        """
        assert self._child is not None
        try:
            own = listens(self._child.pid, self._port)
        except OSError as problem:
            raise LocalError(f"{problem.filename}: {problem.strerror}; it tells whose port it is") from problem
        if own is False:
            raise LocalError(f"port {self._port}: Address already in use: another program began to listen there")
        with self._asking():
            return own is True and self._server.is_healthy()

    def _until_ready(self) -> None:
        """Wait for health.

        Raises:
            LocalError: The server ended, or did not say that it is well in time.
        """
        assert self._child is not None
        started = told = time.monotonic()
        while not self._is_up():
            self._sleep(POLL)
            if (code := self._child.poll()) is not None:
                raise LocalError(f"the server ended before it was ready: {reason(self._home.server_log, code)}")
            now = time.monotonic()
            if now - started > self._patience.ready:
                raise LocalError(
                    f"the server was not ready after {self._patience.ready:.0f} s; see {self._home.server_log}"
                )
            if now - told >= 15:
                told = now
                self._say(f"starting: {now - started:.0f} s so far")

    def _ready(self) -> None:
        with self._asking():
            self._traits = self._server.traits(self._service.model)
        self._write("ready")
        self._say(f"ready: {self._server.base_url}  model: {self._service.model}")

    def _watch(self) -> None:
        """Start the server again whenever it dies.

        Raises:
            LocalError: It died as often as there are tries.
        """
        failures = 0
        while True:
            failures, why = self._until_dead(failures)
            while True:
                if failures == len(self._patience.backoff):
                    raise LocalError(f"the server died {failures + 1} times in a row: {why}")
                wait = self._patience.backoff[failures]
                failures += 1
                self._restarts += 1
                self._say(f"the server died ({why}): starting it again in {wait:.0f} s")
                self._end()
                self._write("restarting", why)
                self._sleep(wait)
                try:
                    self._start()
                    self._write("restarting", why)
                    self._until_ready()
                    break
                except LocalError as problem:
                    why = str(problem)
            self._warm_again()
            self._ready()

    def _until_dead(self, failures: int) -> tuple[int, str]:
        """Wait until the child ends or hangs; return the failures that still count, and what happened."""
        assert self._child is not None
        begun = looked = time.monotonic()
        silent: float | None = None  # since when
        look = self._patience.hung / _LOOKS
        while (code := self._child.poll()) is None and (silent is None or looked - silent < self._patience.hung):
            self._sleep(POLL)
            if (now := time.monotonic()) - looked >= look:
                with self._asking():
                    silent = None if self._server.is_healthy(timeout=look) else now if silent is None else silent
                with contextlib.suppress(OSError):
                    keep_short(self._home.server_log)
                looked = time.monotonic()
        counted = 0 if time.monotonic() - begun > self._patience.steady else failures
        if code is None:
            return counted, f"it did not say that it is well for {self._patience.hung:.0f} s"
        return counted, reason(self._home.server_log, code)

    def _warm_again(self) -> None:
        """A new process has an empty cache: send the heads that were warm. What fails here fails nothing else."""
        until = time.monotonic() + self._patience.hung
        for head in reversed(warming.remembered(self._home)):
            left = until - time.monotonic()
            if left <= 0:
                self._say(f"the other heads are not warmed again: that took {self._patience.hung:.0f} s already")
                return
            try:
                with self._asking():
                    warmth = warming.warm(self._server, head, timeout=left)
                self._say(f"warmed again: {warmth.cached} tokens")
            except LocalError as problem:
                self._say(f"a head could not be warmed again: {problem}")

    def _end(self) -> None:
        if self._child is not None:
            self._tell_to_end()
            kill_rest(self._child.pid, self._patience.stop)
            self._child.wait()
            self._child = None

    def _write(self, phase: Phase, message: str = "") -> None:
        """Write down where the server stands.

        Raises:
            LocalError: The first state cannot be written; a server that runs already is not ended for that.
        """
        child = self._child
        try:
            states.write(self._home, self._state(phase, message, None if child is None else identify(child.pid)))
        except LocalError as problem:
            if phase == "starting":
                raise
            self._say(str(problem))

    def _state(self, phase: Phase, message: str, server: Process | None) -> State:
        return State(
            phase=phase,
            base_url=self._server.base_url,
            model=self._service.model,
            device=self._service.device,
            supervisor=self._itself,
            server=server,
            restarts=self._restarts,
            since=time.time(),
            log=str(self._home.server_log),
            message=message,
            block=self._traits.block,
            context=self._traits.context,
            in_place_system=self._traits.in_place_system,
        )
