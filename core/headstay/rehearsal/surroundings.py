"""What the two processes find: where the SDKs go, no real key, no proxy, and different hash seeds."""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

FIRST_SEED = 1
_OTHER_SEEDS = range(2, 18)

_KEY = re.compile(r"API_?KEY(_|$)|_AUTH_TOKEN$", re.IGNORECASE)
_OUT = frozenset(
    {
        *("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_PROFILE"),
        *("AZURE_OPENAI_AD_TOKEN", "PYTHONSTARTUP"),
    }
)
_ANTHROPIC = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_URL", "ANTHROPIC_API_BASE", "AZURE_OPENAI_ENDPOINT")
_OPENAI = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
_QUIET = {
    "LANGSMITH_TRACING": "false",
    "LANGSMITH_TRACING_V2": "false",
    "LANGCHAIN_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGFUSE_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
    "TRACELOOP_TRACE_CONTENT": "false",
    "ANONYMIZED_TELEMETRY": "false",
    "DO_NOT_TRACK": "1",
}
# gRPC connects without Python's sockets; nobody listens at the port for discarded data.
_GRPC = {"grpc_proxy": "http://127.0.0.1:9", "no_grpc_proxy": "127.0.0.1,localhost"}
_ORDER = "import sys; print(*set(sys.argv[1:]), sep='\\0')"


def environment(given: Mapping[str, str], *, base_url: str, openai_url: str, seed: int) -> dict[str, str]:
    """Return the environment of one process.

    Args:
        given: The user's own. Every API key in it is replaced, so that none is used, whoever it is for.
        base_url: What the Anthropic SDK takes.
        openai_url: What the OpenAI SDK takes. LangChain and LlamaIndex look into `OPENAI_API_BASE` first.
        seed: The hash seed: it decides the order of a set of texts.
    """
    own = {name: text for name, text in given.items() if name.upper() not in _OUT and not _is_proxy(name)}
    kept = {name: "none" if _KEY.search(name) else text for name, text in own.items()}
    return {
        **kept,
        **dict.fromkeys(_ANTHROPIC, base_url),
        **dict.fromkeys(_OPENAI, openai_url),
        **dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY"), "none"),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), "*"),  # also, that those in the system's settings do not count
        **_GRPC,
        **_QUIET,
        "PYTHONHASHSEED": str(seed),
        "PYTHONIOENCODING": "utf-8:backslashreplace",
        "PYTHONUNBUFFERED": "1",
    }


def _is_proxy(name: str) -> bool:
    """Whether a variable names a proxy; one on this machine would pass a request on to any other."""
    return name.upper().endswith("_PROXY")


def other_seed(lists: Iterable[Sequence[str]]) -> int:
    """Return a hash seed that puts the names of tools in another order, where they come out of a set.

    A set of two or three names comes in the same order under many pairs of seeds, so one is looked for.

    Args:
        lists: The tool names of each request under the first seed.
    """
    names = max((sorted(set(one)) for one in lists), key=len, default=list[str]())
    if len(names) < 2:
        return _OTHER_SEEDS[0]
    first = _order(names, FIRST_SEED)
    return next((seed for seed in _OTHER_SEEDS if _order(names, seed) != first), _OTHER_SEEDS[0])


def _order(names: Sequence[str], seed: int) -> str:
    """Return in which order a set of some names comes under a hash seed."""
    done = subprocess.run(  # noqa: S603 - this interpreter; the names are arguments of a fixed script, no shell
        [sys.executable, "-S", "-c", _ORDER, *names],
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return done.stdout.decode("utf-8", "replace")
