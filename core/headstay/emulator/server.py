"""Runs an emulator on the loopback interface, in a thread of its own."""

import errno
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from headstay.emulator.anthropic_switches import AnthropicSwitches
from headstay.emulator.clock import Clock, SystemClock
from headstay.emulator.exchange import Exchange
from headstay.emulator.openai_switches import OpenAISwitches
from headstay.emulator.reply import Responder
from headstay.emulator.state import EmulatorState, Failure, Switches
from headstay.emulator.vllm_settings import VLLMSettings

if TYPE_CHECKING:
    import uvicorn

HOST = "127.0.0.1"

_SECONDS_TO_START = 10.0
_SECONDS_TO_STOP = 10.0


class EmulatorStartError(RuntimeError):
    """The emulator could not start; the message says why."""


class Emulator:
    """A loopback server that speaks the Anthropic and OpenAI APIs, or vLLM's, and models their prompt caches.

    Several may run at once; each has its own caches, ids and record. Use `serve` for a `with` block, or `start`
    and `stop`.

    Args:
        port: The port to listen on; 0 picks a free one.
        clock: Says what time it is; None for the machine's clock.
        responder: Answers requests; None for the built-in model.
        record: Whether exchanges are kept.
        latency: Real seconds from the arrival of a request to the first event of its answer.
        anthropic: How contested Anthropic rules are decided; None for the defaults.
        openai: How contested OpenAI rules are decided; None for the defaults.
        vllm: The vLLM server to emulate instead of both providers, or None.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        clock: Clock | None = None,
        responder: Responder | None = None,
        record: bool = True,
        latency: float = 0.0,
        anthropic: AnthropicSwitches | None = None,
        openai: OpenAISwitches | None = None,
        vllm: VLLMSettings | None = None,
    ) -> None:
        self._port = port
        self._state = EmulatorState(
            clock=clock if clock is not None else SystemClock(),
            switches=Switches(
                anthropic=anthropic if anthropic is not None else AnthropicSwitches(),
                openai=openai if openai is not None else OpenAISwitches(),
                vllm=vllm,
            ),
            responder=responder,
            latency=latency,
            keep=record,
        )
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port it listens on; 0 before it has started when none was asked for."""
        return self._port

    @property
    def base_url(self) -> str:
        """What the Anthropic SDK takes as `base_url`."""
        return f"http://{HOST}:{self._port}"

    @property
    def openai_url(self) -> str:
        """What the OpenAI SDK takes as `base_url`."""
        return f"{self.base_url}/v1"

    @property
    def clock(self) -> Clock:
        """The clock it goes by."""
        return self._state.clock

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """What was asked and answered so far, in the order the answers began."""
        return self._state.exchanges

    def reset(self) -> None:
        """Forget caches, exchanges and failures not yet taken; ids go on counting."""
        self._state.reset()

    def fail_next(
        self,
        *,
        status: int = 500,
        kind: str | None = None,
        after_events: int | None = None,
        retry_after: float | None = None,
        times: int = 1,
    ) -> None:
        """Make the next requests fail.

        Args:
            status: The HTTP status, e.g. 429, 500 or 529; it also picks the error type when `kind` is None.
            kind: The provider's error type.
            after_events: Let a stream begin and break off with an error event after this many events; a request
                that does not stream fails at once.
            retry_after: Seconds for the `retry-after` header.
            times: How many requests fail. SDKs retry twice by default.
        """
        failure = Failure(status=status, kind=kind, after_events=after_events, retry_after=retry_after)
        self._state.fail_next(failure, times=times)

    def hold(self, requests: int) -> None:
        """Keep answers back until this many valid requests have arrived: a cold fan-out without any race."""
        self._state.hold(requests)

    @property
    def waiting(self) -> int:
        """How many requests a hold keeps back right now."""
        return self._state.waiting

    def start(self) -> "Emulator":
        """Listen and answer; return when the server is ready.

        Returns:
            The emulator itself.

        Raises:
            EmulatorStartError: The port is taken or may not be used, or it is running already.
            ImportError: starlette or uvicorn is missing.
        """
        if self._thread is not None:
            raise EmulatorStartError(f"this emulator already listens on {self.base_url}")
        listener = _listen(self._port)
        ready = threading.Event()
        try:
            self._server = _server(self._state, ready)
        except BaseException:
            listener.close()
            raise
        self._port = int(listener.getsockname()[1])
        self._thread = threading.Thread(
            target=self._server.run,
            kwargs={"sockets": [listener]},
            name=f"headstay-emulator-{self._port}",
            daemon=True,
        )
        self._thread.start()
        if not ready.wait(_SECONDS_TO_START):
            self.stop()
            raise EmulatorStartError(f"the emulator did not start on {self.base_url} in {_SECONDS_TO_START:g} s")
        return self

    def stop(self) -> None:
        """Stop listening and wait for the thread; nothing happens when it is not running."""
        server, thread = self._server, self._thread
        self._server = self._thread = None
        if server is not None and thread is not None:
            server.should_exit = True
            thread.join(_SECONDS_TO_STOP)


@contextmanager
def serve(
    *,
    port: int = 0,
    clock: Clock | None = None,
    responder: Responder | None = None,
    record: bool = True,
    latency: float = 0.0,
    anthropic: AnthropicSwitches | None = None,
    openai: OpenAISwitches | None = None,
    vllm: VLLMSettings | None = None,
) -> Generator[Emulator]:
    """Run an emulator for the length of a `with` block; see `Emulator` for the arguments.

    Example:
        >>> from headstay import emulator
        >>> with emulator.serve() as server:
        ...     server.base_url.startswith("http://127.0.0.1:")
        True
    """
    running = Emulator(
        port=port,
        clock=clock,
        responder=responder,
        record=record,
        latency=latency,
        anthropic=anthropic,
        openai=openai,
        vllm=vllm,
    )
    running.start()
    try:
        yield running
    finally:
        running.stop()


def run(
    port: int = 0,
    *,
    announce: Callable[[str], None] = print,
    until: threading.Event | None = None,
    vllm: VLLMSettings | None = None,
) -> None:
    """Run an emulator until it is interrupted: what `headstay emulate` does.

    Args:
        port: The port to listen on; 0 picks a free one.
        announce: Told once, in one line, where it listens.
        until: Ends the run when it is set; None to wait for Ctrl-C.
        vllm: The vLLM server to emulate instead of both providers, or None.

    Raises:
        EmulatorStartError: The port is taken or may not be used.
        ImportError: starlette or uvicorn is missing.
    """
    with serve(port=port, record=False, vllm=vllm) as running, suppress(KeyboardInterrupt):
        served = f"anthropic {running.base_url}  openai" if vllm is None else "vllm"
        announce(f"emulator: {served} {running.openai_url}  (stop with Ctrl-C)")
        (until if until is not None else threading.Event()).wait()


def _listen(port: int) -> socket.socket:
    """Take the port at once, so that a clash is found here and not in another thread."""
    # asyncio sets TCP_NODELAY only on sockets that name their protocol; without it each answer takes 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(1024)
    except (OSError, OverflowError) as error:
        listener.close()
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        reason = "it is in use; stop what listens there, or pass port=0 for a free one" if taken else str(error)
        raise EmulatorStartError(f"cannot listen on {HOST}:{port}: {reason}") from None
    return listener


def _server(state: EmulatorState, ready: threading.Event) -> "uvicorn.Server":
    """Build the server; it says when it is ready."""
    try:
        import uvicorn  # noqa: PLC0415 - optional: only a running emulator needs it

        from headstay.emulator.app import build_app  # noqa: PLC0415 - imports starlette, optional as well
    except ImportError as error:
        if error.name in {"uvicorn", "starlette"}:
            message = 'the emulator needs starlette and uvicorn: pip install "headstay[emulator]"'
            raise ImportError(message, name=error.name) from error
        raise

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready.set()

    return Announcing(
        uvicorn.Config(
            build_app(state),
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=1,
            timeout_keep_alive=600,  # a client may pause longer than the default 5 s on a busy machine
        )
    )
