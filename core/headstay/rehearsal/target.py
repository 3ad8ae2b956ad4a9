"""`module:attribute`: read it, import it, and call what it names."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from headstay.errors import RehearsalError
from headstay.rehearsal.drive import kind_of
from headstay.rehearsal.failure import told


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be run.

    Attributes:
        module: Name of the module, with dots.
        attribute: What it holds, with dots where it is nested.
    """

    module: str
    attribute: str

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}"


def parse(text: str) -> Target:
    """Read `module:attribute`.

    Raises:
        RehearsalError: It is of another form.
    """
    module, colon, attribute = text.strip().partition(":")
    if module.endswith(".py") or "/" in module or "\\" in module:
        name = module.removesuffix(".py").replace("\\", "/").strip("./").replace("/", ".")
        raise RehearsalError(f"{text!r} names a file; name the module: {name}:{attribute or 'make_agent'}")
    if not colon or not _is_dotted(module) or not _is_dotted(attribute):
        raise RehearsalError(f"{text!r} names no agent; write module:attribute, such as desk:make_agent")
    return Target(module, attribute)


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def load(target: Target) -> object:
    """Import the module and take the attribute.

    Raises:
        RehearsalError: There is no such module or attribute, or the module cannot be imported.
    """
    try:
        found: object = import_module(target.module)
    except ModuleNotFoundError as problem:
        if problem.name and f"{target.module}.".startswith(f"{problem.name}."):
            raise RehearsalError(
                f"there is no module {problem.name!r} in the current folder or among the installed packages; "
                "run this in the folder from which the application is started"
            ) from problem
        raise RehearsalError(f"{target.module} cannot be imported: {told(problem)}") from problem
    except (Exception, SystemExit) as problem:
        raise RehearsalError(f"{target.module} cannot be imported: {told(problem)}") from problem
    name = target.module
    for part in target.attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as problem:
            has = ", ".join(_offered(found)) or "nothing that can be run"
            raise RehearsalError(f"{name} has no {part!r}; it has {has}") from problem
        name = f"{name}.{part}"
    return found


def _offered(found: object) -> list[str]:
    """Name what might have been meant: what a module or object defines itself and can be run."""
    home = getattr(found, "__name__", None)
    names = (
        [
            name
            for name, value in vars(found).items()
            if not name.startswith("_")
            and (kind_of(value) is not None or (callable(value) and getattr(value, "__module__", home) == home))
        ]
        if hasattr(found, "__dict__")
        else []
    )
    return names[:8]


def factory_of(found: object, target: Target) -> Callable[[], object] | None:
    """Return what makes the agent, or None where the target is one already.

    Raises:
        RehearsalError: It is neither, or it cannot be called without arguments.
    """
    if kind_of(found) is not None:
        return None
    if not callable(found):
        raise RehearsalError(
            f"{target} is of type {type(found).__name__}: neither an agent nor a function that makes one"
        )
    if required := _required(found):
        raise RehearsalError(
            f"{target} needs {', '.join(required)}; write a function without arguments that calls it, and name that one"
        )
    return found


def _required(found: Callable[..., object]) -> list[str]:
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one.name for one in parameters if one.default is inspect.Parameter.empty and one.kind not in kinds]


def first_on_path(folder: str) -> None:
    """Look for modules in a folder first, as `python -m` does."""
    sys.path[:] = [folder, *(entry for entry in sys.path if entry not in ("", folder))]
