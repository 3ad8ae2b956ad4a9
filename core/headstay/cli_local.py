"""`headstay local`: install, start, look at, warm and stop a vLLM server of this user's own."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from headstay.cli_format import Format, FormatOption, bad_input
from headstay.errors import ConfigError, LocalError
from headstay.local import install as installing
from headstay.local import state as states
from headstay.local import supervise, weights
from headstay.local import warm as warming
from headstay.local.client import Server, server_at
from headstay.local.device import OLDEST_PYTHON, decide, read_facts
from headstay.local.home import Home, find_home
from headstay.local.log import Say
from headstay.local.pins import Plan, plan
from headstay.local.pip_run import masked
from headstay.local.process import leaving_on_signals
from headstay.local.profile import Settings, launch
from headstay.local.watch import Patience, Service
from headstay.providers.vllm import SALT_KEY, Engine

app = typer.Typer(help="Run a vLLM server of your own, with prefix caching.", no_args_is_help=True)

Wheelhouse = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="take every wheel from this folder, and ask no index")
]
Python = Annotated[Path | None, typer.Option(metavar="FILE", help="the interpreter to make the environment with")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="only tell what would be done")]
ModelName = Annotated[str | None, typer.Option(metavar="NAME_OR_FOLDER", help="an id on the hub, or a folder")]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="port on 127.0.0.1; by default a free one")]
Detach = Annotated[bool, typer.Option("--detach", help="return when it is ready, and leave it running")]
Context = Annotated[int | None, typer.Option(min=64, help="most tokens of a request; by default the model's limit")]
KvGib = Annotated[
    int | None, typer.Option(min=1, help="GiB for the cache, on a CPU; by default an eighth of the memory, 1 to 8")
]
Dtype = Annotated[str | None, typer.Option(help="number type; by default what suits the device")]
ToolParser = Annotated[str | None, typer.Option(help="vLLM's parser of the model's tool calls")]
Wait = Annotated[float, typer.Option(min=1, help="seconds that a start may take")]
Extra = Annotated[list[str] | None, typer.Option("--arg", metavar="ARG", help="a further argument of vLLM, as it is")]
BaseUrl = Annotated[str | None, typer.Option(metavar="URL", help="a server that runs elsewhere")]
ApiKey = Annotated[str | None, typer.Option(envvar="HEADSTAY_LOCAL_API_KEY", help="key of that server")]


def _said(line: str) -> None:
    with contextlib.suppress(OSError):  # a terminal that is gone ends no installation
        typer.echo(line, err=True)


@app.command()
def install(
    *,
    wheelhouse: Wheelhouse = None,
    python: Python = None,
    dry_run: DryRun = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Make an environment for vLLM in the user's cache directory, and prepare the default weights.

    What is there already is kept, and a broken installation goes on where it stopped. HEADSTAY_LOCAL_HOME chooses
    another folder, HEADSTAY_TORCH_INDEX the index that holds torch for CPUs.
    """
    with bad_input():
        home = find_home()
        wanted = _plan(python, wheelhouse)
        if dry_run:
            _tell_plan(home, wanted, form)
            return
        _said(wanted.device.reason)
        begun = time.monotonic()
        done = installing.install(home, wanted, _said)
    seconds = round(time.monotonic() - begun, 1)
    if form is Format.JSON:
        told = {"home": str(home.path), "python": str(done.python), "weights": str(done.weights)}
        typer.echo(json.dumps({**told, "done": done.done, "seconds": seconds}))
    else:
        typer.echo(f"installed in {home.path} ({seconds:.0f} s); start it with: headstay local serve")


def _plan(python: Path | None, wheelhouse: Path | None) -> Plan:
    version = sys.version_info[:2] if python is None else installing.python_version(python)
    return plan(decide(read_facts(version)), os.environ, python, wheelhouse)


def _tell_plan(home: Home, wanted: Plan, form: Format) -> None:
    pip = [str(home.python), "-m", "pip", "install"]
    steps = [
        {
            "name": step.name,
            "command": [*pip, *step.arguments],
            "or_with": ["--index-url", masked(step.index)] if step.index else [],
        }
        for step in wanted.steps
    ]
    there = installing.is_installed(home, wanted)
    if form is Format.JSON:
        device = {"kind": wanted.device.kind, "reason": wanted.device.reason}
        typer.echo(json.dumps({"home": str(home.path), "device": device, "steps": steps, "installed": there}))
        return
    typer.echo(f"{wanted.device.reason}\nhome: {home.path}{'  (installed)' if there else ''}")
    for step in steps:
        typer.echo(f"{step['name']}: {' '.join(step['command'])}")
        if step["or_with"]:
            typer.echo(f"  or with {' '.join(step['or_with'])}")


@app.command()
def serve(
    *,
    model: ModelName = None,
    port: Port = None,
    detach: Detach = False,
    context: Context = None,
    kv_gib: KvGib = None,
    dtype: Dtype = None,
    tool_parser: ToolParser = None,
    wait: Wait = 300.0,
    arg: Extra = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Start the server on the loopback, print its base URL, and watch it until Ctrl-C.

    It is started again when it dies, and the heads that `headstay local warm` has warmed are warmed again. With
    --detach this returns when the server is ready; `headstay local stop` ends it. With --format json the URL comes as
    a JSON object.
    """
    with bad_input():
        home = find_home()
        facts = read_facts(OLDEST_PYTHON)  # the environment has an interpreter of its own
        device = installing.device_for(home, facts)
        found = weights.find(home, model, tool_parser)

        def settings(at: int) -> Settings:
            return Settings(port=at, context=context, kv_gib=kv_gib, dtype=dtype, extra=tuple(arg or ()))

        def command(at: int) -> tuple[str, ...]:
            return launch(device, home.python, home.path, found, settings(at)).command

        environment = launch(device, home.python, home.path, found, settings(0)).whole_environment()
        if detach:
            _detached(home, wait, form)
            return
        served_on = device.reason if dtype is None else f"{device.reason}; served in {dtype}"
        service = Service(command, environment, found.name, served_on)
        _said(f"{served_on}; log: {home.server_log}")
        try:
            supervise.serve(home, service, _ready_line(home, form), port=port, patience=Patience(ready=wait))
        except LocalError as problem:
            if found.local:
                raise
            raise LocalError(f"{problem}; --model {model} is taken for an id on the Hugging Face hub") from problem


def _ready_line(home: Home, form: Format) -> Say:
    """Return what tells the lines of the supervisor: the one with the URL on stdout, the others on stderr."""

    def say(line: str) -> None:
        if not line.startswith("ready: "):
            _said(line)
        elif form is Format.JSON:
            _print_state(states.read(home))
        else:
            typer.echo(line.removeprefix("ready: "))

    return say


def _detached(home: Home, wait: float, form: Format) -> None:
    """Start this same command again as a process of its own, and wait until its server is ready.

    Raises:
        LocalError: It did not become ready; the message says why.
    """
    supervise.refuse_second(home)
    arguments = [argument for argument in sys.argv[1:] if argument != "--detach"]
    try:
        home.run.mkdir(mode=0o700, parents=True, exist_ok=True)
        # a name of its own until it is ready: of two that are started at once, one ends, and must say why to its caller
        handle, name = tempfile.mkstemp(prefix="supervisor-", suffix=".log", dir=home.run)
        log = Path(name)
        with os.fdopen(handle, "wb") as out:
            child = subprocess.Popen(  # noqa: S603 - our own command, no shell
                [sys.executable, "-P", "-m", "headstay.cli", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            with leaving_on_signals():
                _await_ready(home, child, log, wait, form)
            os.replace(log, home.run / "supervisor.log")
        except BaseException:  # Ctrl-C too: what was not seen to be ready is not left running
            child.terminate()
            log.unlink(missing_ok=True)
            raise
    except OSError as problem:
        raise LocalError(f"{problem.filename or home.run}: {problem.strerror or problem}") from problem


def _await_ready(home: Home, child: "subprocess.Popen[bytes]", log: Path, wait: float, form: Format) -> None:
    """Wait for the detached supervisor's server, and print its URL.

    Raises:
        LocalError: It did not become ready.
    """
    until = time.monotonic() + wait + 30
    while time.monotonic() < until:
        state = states.read(home)
        if child.poll() is not None:
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["it said nothing"]
            raise LocalError(lines[-1].removeprefix("headstay: "))
        if state is not None and state.supervisor.pid == child.pid and state.phase == "ready":
            _print_state(state) if form is Format.JSON else typer.echo(f"{state.base_url}  model: {state.model}")
            return
        time.sleep(0.2)
    raise LocalError(f"the server was not ready after {wait:.0f} s; see {home.server_log}")


def _print_state(state: states.State | None) -> None:
    if state is not None:
        typer.echo(json.dumps(_state_json(state)))


def _state_json(state: states.State) -> dict[str, Any]:
    return {
        "phase": state.phase,
        "base_url": state.base_url,
        "model": state.model,
        "device": state.device,
        "pid": None if state.server is None else state.server.pid,
        "supervisor_pid": state.supervisor.pid,
        "restarts": state.restarts,
        "since": state.since,
        "log": state.log,
        "message": state.message,
        "block": state.block,
        "context": state.context,
        "in_place_system": state.in_place_system,
    }


@app.command()
def status(*, base_url: BaseUrl = None, api_key: ApiKey = None, form: FormatOption = Format.TEXT) -> None:
    """Tell whether the server runs, and what it read from its prefix cache. Exit 1: it does not serve."""
    with bad_input():
        state = None if base_url is not None else states.read(find_home())
        server = _server(base_url, api_key, state)
        told: dict[str, Any] = {} if state is None else _state_json(state)
        if state is not None and not state.is_watched and state.phase in ("starting", "ready", "restarting"):
            told["phase"] = "orphaned" if state.is_orphaned else "gone"
        healthy = server is not None and server.is_healthy()
        told["serving"] = healthy
        if server is not None:
            told["base_url"] = server.base_url
        if healthy and server is not None:
            told["models"] = server.models()
            figures = server.figures()
            told["prefix_cache"] = None if figures is None else asdict(figures)
    if form is Format.JSON:
        typer.echo(json.dumps(told))
    else:
        _tell_status(told)
    if not healthy:
        raise typer.Exit(1)


def _tell_status(told: dict[str, Any]) -> None:
    phase = told.get("phase", "serving" if told["serving"] else "not running")
    where = "" if phase in ("stopped", "failed", "gone") else told.get("base_url", "")
    typer.echo(f"{phase}  {where}".rstrip())
    if told.get("message"):
        typer.echo(f"  {told['message']}")
    if told["serving"]:
        typer.echo(f"  model: {', '.join(told['models'])}")
        figures = told["prefix_cache"]
        if figures is None:
            typer.echo("  it has no counters of vLLM's")
        elif figures["queried_tokens"]:
            share = figures["read_tokens"] / figures["queried_tokens"]
            typer.echo(
                f"  read from the prefix cache: {figures['read_tokens']:,} of {figures['queried_tokens']:,} "
                f"prompt tokens ({share:.0%}); cache in use: {figures['kv_used']:.0%}"
            )
    if told.get("log"):
        typer.echo(f"  log: {told['log']}")


def _server(base_url: str | None, api_key: str | None, state: states.State | None) -> Server | None:
    if base_url is not None:
        return server_at(base_url, api_key)
    return None if state is None or not state.is_alive else server_at(state.base_url)


@app.command()
def warm(
    request: Annotated[Path, typer.Argument(help="a body of Chat Completions; - for stdin", show_default=False)],
    *,
    tenant: Annotated[str | None, typer.Option(help="the tenant whose head it is")] = None,
    salt: Annotated[str | None, typer.Option(help="a cache salt that is not a tenant's")] = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Prefill the head of a request (tools and leading system messages), and prove that it can be read.

    The request is one as it is sent, with its placeholders. HEADSTAY_SALT_KEY is heeded as by ChatLocal. Exit 1: it was
    sent, but the server read less than the whole blocks of the head.
    """
    with bad_input():
        if tenant is not None and salt is not None:
            raise ConfigError("--tenant and --salt: give one of them; a tenant's salt is made from its name")
        if salt == "":
            raise ConfigError("--salt: it is empty; leave it out for a head without one")
        if tenant is not None:
            salt = Engine(salt_key=os.environ.get(SALT_KEY, "").encode()).salt(tenant)
        body = _request(request)
        home = find_home()
        server = _server(base_url, api_key, states.read(home))
        if server is None:
            raise LocalError("no server runs; start one with: headstay local serve, or give --base-url")
        head = warming.head_of(_for_model(body, server), salt)
        warmth = warming.warm(server, head)
        if base_url is None and warmth.is_warm:
            warming.remember(home, head)
    if form is Format.JSON:
        typer.echo(json.dumps({**asdict(warmth), "warm": warmth.is_warm}))
    else:
        known = "" if warmth.expected is None else f" of {warmth.expected} that whole blocks allow"
        length = "a head of unknown length" if warmth.head_tokens is None else f"{warmth.head_tokens} tokens of head"
        typer.echo(
            f"{'warm' if warmth.is_warm else 'not warm'}: {length}, {warmth.cached} read{known}; "
            f"{warmth.before} were there before; {warmth.seconds:.2f} s"
        )
    if not warmth.is_warm:
        raise typer.Exit(1)


def _for_model(body: dict[str, Any], server: Server) -> dict[str, Any]:
    """Return the body with a model that the server has: a logged request may name the one of another provider.

    Raises:
        LocalError: The server has no model.
    """
    models = server.models()
    if not models:
        raise LocalError(f"{server.base_url}: this server has no model")
    return body if body.get("model") in models else {**body, "model": models[0]}


def _request(path: Path) -> dict[str, Any]:
    """Read a request's body.

    Raises:
        ConfigError: It cannot be read, or is no JSON object.
    """
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        body: Any = json.loads(text)
    except (OSError, ValueError) as problem:
        raise ConfigError(f"{path}: {getattr(problem, 'strerror', None) or problem}") from problem
    if not isinstance(body, dict):
        raise ConfigError(f"{path}: this is no JSON object")
    return dict(body)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


@app.command()
def stop() -> None:
    """End the server and all its processes."""
    with bad_input():
        found = supervise.stop(find_home())
    typer.echo("stopped" if found else "no server runs")
