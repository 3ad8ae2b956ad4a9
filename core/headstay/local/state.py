"""What the supervisor writes down about the server, for `status`, `stop` and the next start."""

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, cast

from headstay.errors import LocalError
from headstay.local.home import Home
from headstay.local.process import Process, is_left, is_running

Phase = Literal["starting", "ready", "restarting", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class State:
    """The server as its supervisor saw it last.

    Attributes:
        phase: Where it stands.
        base_url: URL for OpenAI clients, with `/v1`.
        model: What requests call the model.
        device: What it runs on, in words.
        supervisor: The process that watches it.
        server: The server's process, which leads its group; None before the first start and after the end.
        restarts: How often it was started again.
        since: Unix time of the last change of phase.
        log: Path of the server's log.
        message: Why it failed or was started again, else empty.
        block: Tokens of a block of its cache, or None if it did not say.
        context: Most tokens of a request and its answer, or None if it did not say.
        in_place_system: Whether the chat template takes a system message behind others, or None if it did not say.
    """

    phase: Phase
    base_url: str
    model: str
    device: str
    supervisor: Process
    server: Process | None
    restarts: int
    since: float
    log: str
    message: str = ""
    block: int | None = None
    context: int | None = None
    in_place_system: bool | None = None

    @property
    def is_watched(self) -> bool:
        """Whether the supervisor still runs."""
        return is_running(self.supervisor)

    @property
    def is_orphaned(self) -> bool:
        """Whether the server, or a process of it, still runs though its supervisor does not."""
        return self.server is not None and not self.is_watched and is_left(self.server)

    @property
    def is_alive(self) -> bool:
        """Whether there is something that runs: the supervisor, or what it left."""
        return self.is_watched or self.is_orphaned


def read(home: Home) -> State | None:
    """Return what was written last, or None if there is nothing that can be read.

    What another version of headstay wrote is read as far as this one knows it.
    """
    try:
        told = cast("dict[str, Any]", json.loads(_path(home).read_text(encoding="utf-8")))
        server = told.pop("server")
        return State(
            supervisor=Process(**_known(Process, told.pop("supervisor"))),
            server=None if server is None else Process(**_known(Process, server)),
            **_known(State, told),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write(home: Home, state: State) -> None:
    """Write the state down, whole or not at all.

    Raises:
        LocalError: It cannot be written.
    """
    path = _path(home)
    part = path.with_suffix(".part")
    try:
        part.write_text(json.dumps(asdict(state), indent=2) + "\n", encoding="utf-8")
        os.replace(part, path)
    except OSError as problem:
        raise LocalError(f"{path}: cannot be written: {problem.strerror or problem}") from problem


def _known(kind: type[State | Process], told: dict[str, Any]) -> dict[str, Any]:
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in told.items() if name in names}


def _path(home: Home) -> Path:
    return home.run / "state.json"
