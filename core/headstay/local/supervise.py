"""Keep one server running for a home: a lock against a second one, a port, and the way to end it."""

import contextlib
import os
import shutil
import signal
import socket
import time
from dataclasses import replace

from headstay.errors import ConfigError, LocalError
from headstay.local import state as states
from headstay.local import warm as warming
from headstay.local.home import Home
from headstay.local.lock import Held, hold
from headstay.local.log import Say, turn_over
from headstay.local.process import Process, end_group, is_running
from headstay.local.state import State
from headstay.local.watch import POLL, Patience, Service, Supervisor


def serve(home: Home, service: Service, say: Say, *, port: int | None = None, patience: Patience | None = None) -> None:
    """Keep a server running until SIGINT, SIGTERM or SIGHUP. Call it in the main thread.

    Args:
        home: The local model's folder.
        service: What is to be kept running.
        say: Called with each line for people. It may fail: a terminal that is gone ends no server.
        port: Port on the loopback, or None for a free one.
        patience: How long to wait for what.

    Raises:
        ConfigError: The port is in use.
        LocalError: A server runs already, does not start, or dies again and again.
    """

    def told(line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a pipe that nobody reads, a file that was closed
            say(line)

    try:
        home.run.mkdir(mode=0o700, parents=True, exist_ok=True)
        with hold(home.run / "server.lock"):
            _end_orphan(home, told, patience or Patience())
            warming.forget_all(home)
            turn_over(home.server_log)
            shutil.rmtree(home.sockets, ignore_errors=True)
            home.sockets.mkdir(mode=0o700)
            _serve(home, service, told, port, patience or Patience())
    except Held as held:
        refuse_second(home)
        raise LocalError("a server is being started or ended; try again in a moment") from held
    except OSError as problem:
        raise LocalError(f"{problem.filename or home.run}: {problem.strerror or problem}") from problem


def refuse_second(home: Home) -> None:
    """Do nothing if no server runs.

    Raises:
        LocalError: A server runs already.
    """
    running = states.read(home)
    if running is not None and running.is_watched:
        raise LocalError(
            f"a server runs already at {running.base_url} ({running.phase}); end it with: headstay local stop"
        )


def _serve(home: Home, service: Service, say: Say, port: int | None, patience: Patience) -> None:
    """Supervise, on another port if the one that was free is taken before the server gets to it."""
    for left in (2, 1, 0):
        try:
            Supervisor(home, service, say, choose_port(port), patience).run()
        except LocalError as problem:
            if port is not None or left == 0 or "Address already in use" not in str(problem):
                raise
            say("the port that was free is taken: trying another")
        else:
            return


def choose_port(port: int | None) -> int:
    """Return the port if it is free, or one that is.

    Raises:
        ConfigError: The port is in use.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just given back is free
        try:
            probe.bind(("127.0.0.1", port or 0))
        except OSError as problem:
            raise ConfigError(f"--port {port}: {problem.strerror or problem}; leave it out for a free one") from problem
        return int(probe.getsockname()[1])


def stop(home: Home, *, patience: Patience | None = None) -> bool:
    """End the server and its supervisor.

    Returns:
        Whether there was one.

    Raises:
        LocalError: It is still there.
    """
    wait = patience or Patience()
    state = states.read(home)
    if state is None or not state.is_alive:
        return False
    for number, seconds in ((signal.SIGTERM, wait.stop + wait.late), (signal.SIGKILL, 5.0)):
        if state.is_watched:
            with contextlib.suppress(ProcessLookupError):
                os.kill(state.supervisor.pid, number)
            _await_end(state.supervisor, seconds)
    if state.is_watched:
        raise LocalError(f"process {state.supervisor.pid} does not end")
    state = states.read(home) or state  # which server it had last
    if state.is_orphaned:
        _end_left(state, wait)
        states.write(home, replace(state, phase="stopped", server=None, since=time.time()))
    return True


def _await_end(process: Process, seconds: float) -> None:
    until = time.monotonic() + seconds
    while is_running(process) and time.monotonic() < until:
        time.sleep(POLL)


def _end_orphan(home: Home, say: Say, patience: Patience) -> None:
    """End a server whose supervisor was killed: it holds memory, and nothing would watch it."""
    state = states.read(home)
    if state is not None and state.is_orphaned:
        say("an earlier server still runs without its supervisor: ending it")
        _end_left(state, patience)


def _end_left(state: State, patience: Patience) -> None:
    """End what is left of a server.

    Raises:
        LocalError: It is still there.
    """
    if state.server is not None:
        end_group(state.server.pid, patience.stop)
        if state.is_orphaned:
            raise LocalError(f"process group {state.server.pid} does not end")
