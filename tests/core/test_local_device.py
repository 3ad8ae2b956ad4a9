"""The local model: what a machine can run, and the exact command that follows."""

from dataclasses import replace
from pathlib import Path

import pytest

from headstay.errors import ConfigError
from headstay.local import weights
from headstay.local.device import Device, Facts, decide
from headstay.local.home import Home, find_home
from headstay.local.profile import Model, Settings, launch

PLAIN = Facts(
    system="Linux",
    machine="x86_64",
    libc="glibc",
    flags=frozenset({"sse2", "avx2", "fma"}),
    cores=(0, 1, 2, 3),
    quota=None,
    memory=24 << 30,
    gpus=(),
    python=(3, 11),
)
PYTHON, CACHE = Path("/e/bin/python"), Path("/c")
SMALL = Model("/w/small", "small", "hermes")


@pytest.mark.parametrize(
    ("flags", "dtype"),
    [
        ({"avx2"}, "float32"),
        ({"avx2", "avx512f"}, "float32"),
        ({"avx2", "avx512_bf16"}, "bfloat16"),
        ({"avx2", "amx_bf16"}, "bfloat16"),
        ({"avx2", "amx_tile", "amx_int8"}, "float32"),
    ],
)
def test_a_cpu_serves_in_what_it_multiplies_itself(flags: set[str], dtype: str) -> None:
    device = decide(replace(PLAIN, flags=frozenset(flags)))
    assert (device.kind, device.dtype, device.cores) == ("cpu", dtype, (0, 1, 2, 3))


@pytest.mark.parametrize(("quota", "cores"), [(None, 4), (4.0, 4), (1.5, 2), (0.2, 1), (64.0, 4)])
def test_a_container_binds_no_more_cores_than_it_is_granted(quota: float | None, cores: int) -> None:
    assert len(decide(replace(PLAIN, quota=quota)).cores) == cores


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"system": "Darwin", "machine": "arm64"}, "this is Darwin"),
        ({"system": "Windows"}, "this is Windows"),
        ({"machine": "aarch64"}, "this is aarch64"),
        ({"libc": ""}, "glibc"),
        ({"python": (3, 14)}, "Python 3.11 to 3.13; this is 3.14"),
        ({"flags": frozenset({"sse2"})}, "AVX2"),
        ({"flags": frozenset()}, "AVX2"),
    ],
)
def test_what_cannot_run_it_is_told_what_is_missing_and_how_to_attach(changed: dict[str, object], named: str) -> None:
    device = decide(replace(PLAIN, **changed))
    assert device.kind == "none"
    assert named in device.reason
    assert "--base-url" in device.reason


def test_a_gpu_is_taken_before_the_cpu_and_needs_no_avx2() -> None:
    device = decide(replace(PLAIN, gpus=("NVIDIA L4",), flags=frozenset()))
    assert (device.kind, device.dtype) == ("cuda", "auto")
    assert "NVIDIA L4" in device.reason


def test_the_whole_command_on_a_cpu() -> None:
    device = Device("cpu", "", "float32", cores=(0, 2, 3), memory=24 << 30)
    made = launch(device, PYTHON, CACHE, SMALL, Settings(port=8011))
    assert " ".join(made.command) == (
        "/e/bin/python -m vllm.entrypoints.openai.api_server --model /w/small --served-model-name small "
        "--host 127.0.0.1 --port 8011 --disable-uvicorn-access-log --enable-prefix-caching "
        "--prefix-caching-hash-algo sha256_cbor --enable-prompt-tokens-details --enable-auto-tool-choice "
        "--tool-call-parser hermes --tool-strict-level parameter --enforce-eager --block-size 32 --dtype float32"
    )
    assert dict(made.environment) == {
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "VLLM_CACHE_ROOT": "/c/vllm",
        "VLLM_CONFIG_ROOT": "/c/vllm-config",
        "VLLM_RPC_BASE_PATH": "/c/run/ipc",
        "PYTHONUNBUFFERED": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTHONSAFEPATH": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "3",  # an eighth of 24 GiB
        "VLLM_CPU_OMP_THREADS_BIND": "0,2,3",
        "OMP_NUM_THREADS": "3",
    }


def test_the_whole_command_on_a_gpu_leaves_block_and_type_to_vllm() -> None:
    made = launch(Device("cuda", ""), PYTHON, CACHE, Model("org/big", "org/big", local=False), Settings(port=1))
    assert " ".join(made.command[3:]) == (
        "--model org/big --served-model-name org/big --host 127.0.0.1 --port 1 --disable-uvicorn-access-log "
        "--enable-prefix-caching --prefix-caching-hash-algo sha256_cbor --enable-prompt-tokens-details"
    )
    assert not {"VLLM_TARGET_DEVICE", "VLLM_CPU_KVCACHE_SPACE", "HF_HUB_OFFLINE"} & set(made.environment)


@pytest.mark.parametrize(("gib", "share"), [(2, 1), (8, 1), (24, 3), (512, 8)])
def test_the_cache_takes_an_eighth_of_the_memory(gib: int, share: int) -> None:
    made = launch(Device("cpu", "", "float32", (0,), gib << 30), PYTHON, CACHE, SMALL, Settings(port=1))
    assert made.environment["VLLM_CPU_KVCACHE_SPACE"] == str(share)


def test_settings_of_the_user_come_last() -> None:
    chosen = Settings(port=1, context=2048, kv_gib=5, dtype="bfloat16", extra=("--max-num-seqs", "4"))
    made = launch(Device("cpu", "", "float32", (0,), 1 << 30), PYTHON, CACHE, SMALL, chosen)
    assert made.command[-6:] == ("--dtype", "bfloat16", "--max-model-len", "2048", "--max-num-seqs", "4")
    assert made.environment["VLLM_CPU_KVCACHE_SPACE"] == "5"


def test_the_servers_environment_has_nothing_of_the_applications_python() -> None:
    made = launch(Device("cuda", ""), PYTHON, CACHE, SMALL, Settings(port=1))
    theirs = {"PATH": "/bin", "PYTHONPATH": "/app", "PYTHONHASHSEED": "7", "VIRTUAL_ENV": "/app/venv", "HF_TOKEN": "t"}
    whole = made.whole_environment({**theirs, "PYTHONWARNINGS": "error", "PYTHONDEVMODE": "1"})
    assert whole == {"PATH": "/bin", "HF_TOKEN": "t", **made.environment}


def test_the_servers_environment_has_nothing_that_was_meant_for_another_server() -> None:
    made = launch(Device("cuda", ""), PYTHON, CACHE, SMALL, Settings(port=1))
    wishes = {"VLLM_LOGGING_LEVEL": "DEBUG", "CUDA_VISIBLE_DEVICES": "1", "HTTPS_PROXY": "http://proxy.example"}
    others = {
        "VLLM_API_KEY": "k",  # it would refuse our own questions
        "VLLM_PORT": "tcp://10.0.0.1:80",  # what Kubernetes sets beside a service called vllm; vLLM takes a number
        "VLLM_HOST_IP": "10.0.0.2",
        "VLLM_DP_SIZE": "2",
        "VLLM_DP_RANK": "1",
        "PROMETHEUS_MULTIPROC_DIR": "/app/metrics",
    }
    assert made.whole_environment({**wishes, **others}) == {**wishes, **made.environment}


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("--port", "give --port to headstay local serve itself"),
        ("--port=8000", "give --port to headstay local serve itself"),
        ("--model", "give --model to headstay local serve itself"),
        ("--served-model-name", "the model is called by its id"),
        ("--served_model_name=x", "the model is called by its id"),
        ("--api-key", "the server has no key"),
        ("--api-k", "the server has no key"),  # vLLM takes what is short for one option
        ("--host", "127.0.0.1 alone"),
        ("--uds", "127.0.0.1 alone"),
        ("--ssl-keyfile", "without TLS"),
    ],
)
def test_an_argument_that_leads_the_server_away_is_refused(argument: str, told: str) -> None:
    with pytest.raises(ConfigError, match=rf"^--arg {argument.partition('=')[0]}: .*{told}"):
        launch(Device("cuda", ""), PYTHON, CACHE, SMALL, Settings(port=1, extra=(argument, "secret")))


@pytest.mark.parametrize("argument", ["--model-impl", "--api-server-count", "--max-model-len", "-tp", "--seed", "--"])
def test_other_arguments_pass(argument: str) -> None:
    made = launch(Device("cuda", ""), PYTHON, CACHE, SMALL, Settings(port=1, extra=(argument, "2")))
    assert made.command[-2:] == (argument, "2")


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"HEADSTAY_LOCAL_HOME": "/srv/models", "XDG_CACHE_HOME": "/var/cache/me"}, Path("/srv/models")),
        ({"XDG_CACHE_HOME": "/var/cache/me"}, Path("/var/cache/me/headstay/local")),
        ({"XDG_CACHE_HOME": "relative"}, Path("~/.cache/headstay/local").expanduser()),
        ({}, Path("~/.cache/headstay/local").expanduser()),
    ],
)
def test_it_lives_in_the_users_cache_directory(environ: dict[str, str], path: Path) -> None:
    assert find_home(environ).path == path


@pytest.mark.parametrize("setting", ["~nosuchuser", "~nosuchuser/models"])
def test_a_home_of_nobody_is_one_clear_line(setting: str) -> None:
    with pytest.raises(ConfigError, match=rf"^HEADSTAY_LOCAL_HOME={setting}: there is no such home folder; set "):
        find_home({"HEADSTAY_LOCAL_HOME": setting})
    with pytest.raises(ConfigError, match=rf"^--model {setting}: there is no such home folder"):
        weights.find(Home(Path("/h")), setting, None)


@pytest.mark.parametrize(("length", "there"), [(40, True), (65, True), (66, False)])
def test_sockets_stay_in_the_home_where_their_paths_are_not_too_long(length: int, there: bool) -> None:
    folder = Path("/" + "h" * (length - len("/run/ipc") - 1))
    made = launch(decide(PLAIN), PYTHON, folder, SMALL, Settings(8000))
    assert made.environment.get("VLLM_RPC_BASE_PATH") == (f"{folder}/run/ipc" if there else None)
