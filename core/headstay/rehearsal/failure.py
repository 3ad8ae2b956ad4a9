"""How a rehearsal fails: one clear line, with the place in the user's own code and without a traceback."""

import os
import sysconfig
import traceback
from pathlib import Path

from headstay.excerpt import hidden

_LONGEST = 400
_NOT_OWN = ("site-packages", "dist-packages")


def one_line(text: str) -> str:
    """Return a text in one line of at most 400 characters, with secrets hidden."""
    shown = hidden(" ".join(text.split()))
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 3] + "..."


def told(problem: BaseException) -> str:
    """Say what was raised, and where in the user's own code."""
    text = problem.msg if isinstance(problem, SyntaxError) else str(problem)
    place = _place(problem)
    said = one_line(f"{type(problem).__name__}: {text}" if text else type(problem).__name__)
    return f"{said} ({place})" if place else said


def _place(problem: BaseException) -> str:
    """Name the last line of the user's own that led to it: in the current folder, or else outside of any library."""
    if isinstance(problem, SyntaxError) and problem.filename:
        return f"{_shown(problem.filename)}, line {problem.lineno}"
    frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if _is_own(frame.filename)]
    here = [frame for frame in frames if Path(frame.filename).is_relative_to(Path.cwd())]
    found = (here or frames)[-1:]
    return f"{_shown(found[0].filename)}, line {found[0].lineno}" if found else ""


def _is_own(filename: str) -> bool:
    path = Path(filename)
    libraries = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), Path(__file__).parents[1])
    return (
        not filename.startswith("<")
        and not any(part in _NOT_OWN for part in path.parts)
        and not any(path.is_relative_to(library) for library in libraries)
    )


def _shown(filename: str) -> str:
    path = Path(filename)
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else filename
