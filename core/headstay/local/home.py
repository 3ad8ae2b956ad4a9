"""Where the local model lives: one folder of the user's, which the application's environment has no part in."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headstay.errors import ConfigError

SETTING = "HEADSTAY_LOCAL_HOME"


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of the local model.

    Attributes:
        path: The folder. It need not exist.
    """

    path: Path

    @property
    def environment(self) -> Path:
        """The virtual environment that vLLM is installed in; a link to it, as others may be made beside it."""
        return self.path / "env"

    @property
    def python(self) -> Path:
        """The interpreter of that environment."""
        return self.environment / "bin" / "python"

    @property
    def weights(self) -> Path:
        """The folder of converted models."""
        return self.path / "weights"

    @property
    def run(self) -> Path:
        """The folder of what a running server leaves: state, lock, log, warmed heads."""
        return self.path / "run"

    @property
    def sockets(self) -> Path:
        """The folder of a running server's sockets, which vLLM leaves behind."""
        return self.run / "ipc"

    @property
    def install_log(self) -> Path:
        """What pip and the converter said."""
        return self.path / "install.log"

    @property
    def server_log(self) -> Path:
        """What the server said."""
        return self.run / "server.log"


def find_home(environ: Mapping[str, str] | None = None) -> Home:
    """Return the folder: `HEADSTAY_LOCAL_HOME`, else `headstay/local` in the user's cache directory.

    Raises:
        ConfigError: The user's home folder, or the one of the user that the setting names, is not known.
    """
    values = os.environ if environ is None else environ
    chosen = values.get(SETTING)
    cache = values.get("XDG_CACHE_HOME", "")
    try:
        if chosen:
            return Home(Path(chosen).expanduser().absolute())
        # the XDG specification has relative paths ignored
        base = Path(cache) if cache.startswith("/") else Path("~/.cache").expanduser()
    except RuntimeError as problem:
        what = f"{SETTING}={chosen}" if chosen else "the user's cache directory"
        raise ConfigError(f"{what}: there is no such home folder; set {SETTING} to an absolute path") from problem
    return Home(base / "headstay" / "local")
