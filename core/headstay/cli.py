"""The command line. Exit 0: done or clean. 1: findings. 2: bad input, with one clear line."""

import sys
from functools import partial
from importlib import import_module
from typing import Annotated, Any, cast

import typer

from headstay import __version__, cli_cache, cli_calibrate, cli_diff, cli_lint, cli_local
from headstay.cli_format import Format, FormatOption, as_json, bad_input, load
from headstay.errors import ConfigError, HeadstayError
from headstay.local.home import find_home

app = typer.Typer(
    name="headstay",
    help="Keeps the head of a prompt byte-stable, so that prefix caches and semantic caches hit.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(cli_cache.app, name="cache")
app.add_typer(cli_local.app, name="local")
app.command("diff")(cli_diff.diff)
app.command("lint")(cli_lint.lint)
app.command("calibrate")(cli_calibrate.calibrate_command)


_DETAILS = ("requests", "read_shares")  # for examiners, not part of the contract


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"headstay {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Keeps the head of a prompt byte-stable, so that prefix caches and semantic caches hit."""


@app.command()
def demo(
    *,
    agent: Annotated[bool, typer.Option("--agent", help="run the hostile agent instead of the chain")] = False,
    local: Annotated[bool, typer.Option("--local", help="run a short agent on real vLLM instead")] = False,
    form: FormatOption = Format.TEXT,
) -> None:
    """Run a support-desk chain on the real SDKs against the loopback emulator, and measure it.

    No key, no network, no GPU. With --format json only the results are printed. With --agent it is a LangGraph agent
    whose tools, prompt and history change in every way that breaks a prefix. With --local it is a short one on vLLM, as
    `headstay local install` has installed it: a server of its own is started, and ended.
    """
    if local:
        with bad_input():
            _demo_local(form, agent=agent)
        return
    module = load("langgraph_headstay.demo_agent" if agent else "langchain_headstay.demo", "demo")
    load("uvicorn", "demo")
    table = cast("Any", import_module("headstay.demo_table"))
    with table.progress(module.CALLS) as advance:
        results = module.run_demo(module.DEMO, progress=advance, **module.OPTIONS)
    if form is Format.JSON:
        told = [{name: value for name, value in result.items() if name not in _DETAILS} for result in results]
        typer.echo(as_json({"results": told}))
    else:
        table.show(results, module.TITLE, module.price_date())


def _demo_local(form: Format, *, agent: bool) -> None:
    if agent:
        raise ConfigError("--local plays an agent already: leave --agent out")
    module = load("langgraph_headstay.demo_local", "demo")
    told = module.run_demo(find_home(), say=partial(typer.echo, err=True))
    typer.echo(as_json(told) if form is Format.JSON else "\n".join(module.lines(told)))


@app.command()
def emulate(
    *,
    port: Annotated[int, typer.Option(help="port on 127.0.0.1; 0 picks a free one")] = 0,
    vllm: Annotated[bool, typer.Option("--vllm", help="emulate a vLLM server instead of the two providers")] = False,
    block: Annotated[int, typer.Option(min=1, help="with --vllm: tokens of a block of its cache")] = 32,
    blocks: Annotated[int, typer.Option(min=2, help="with --vllm: blocks of its cache")] = 2_049,
    context: Annotated[int, typer.Option(min=1, help="with --vllm: most tokens of a request and its answer")] = 32_768,
) -> None:
    """Serve the Anthropic and OpenAI emulator, or an emulated vLLM server, on the loopback until interrupted."""
    server = load("headstay.emulator.server", "emulator")
    load("uvicorn", "emulator")
    try:
        made = import_module("headstay.emulator.vllm_settings").VLLMSettings
        settings = made(block=block, blocks=blocks, context=context) if vllm else None
        server.run(port, announce=typer.echo, vllm=settings)
    except (RuntimeError, OSError, ValueError, HeadstayError) as problem:
        typer.echo(f"headstay: {problem}", err=True)
        raise typer.Exit(2) from problem


def main() -> None:
    """Run the command line."""
    try:
        app()
    except HeadstayError as problem:
        typer.echo(f"headstay: {problem}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
