"""What a chain holds, as JSON values: its prompts, parameters, code and constants."""

import functools
import inspect
import operator
import re
import sys
import sysconfig
import types
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePath
from typing import Any, cast
from uuid import UUID

from langchain_core.language_models import BaseLanguageModel
from langchain_core.runnables import Runnable
from langchain_core.runnables.history import RunnableWithMessageHistory
from pydantic import BaseModel, SecretStr
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

from headstay.canonical import digest, meaning_text
from langchain_headstay.instrument import Instrumented, KeepsCaller

# How a runnable is watched, not what it answers.
_NOT_CONTENT = frozenset({"cache", "callback_manager", "callbacks", "rate_limiter", "run_id", "run_name", "verbose"})
_NOT_CONTENT_OF_OURS = frozenset({"semantic_cache", "head_store", "ledger", "on_break", "verify", "ttl", "tenant"})
_PLAIN = (Enum, date, time, timedelta, Decimal, UUID, PurePath, complex, range)
_PLAIN_TYPES = (re.Pattern, types.GenericAlias, types.UnionType)
_GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)
_MEMBERS: tuple[type, ...] = (types.FunctionType, classmethod, staticmethod, property, str, int, float, tuple)
_FIELDS: tuple[type, ...] = (types.MemberDescriptorType, types.GetSetDescriptorType, type(inspect.ArgInfo.args))
"""What a class with slots, or a named tuple, has for each of its fields."""
_WITHOUT_CONTENT = frozenset(
    ("lock", "RLock", "Logger", "RootLogger", "LoggerAdapter", "ellipsis", "object", "_HAS_DEFAULT_FACTORY_CLASS")
)
_READS_CONFIG = frozenset({"ensure_config", "get_config", "var_child_runnable_config"})
_READS_RUN = frozenset({"metadata", "inheritable_metadata", "tags", "inheritable_tags"})
_FRAMEWORKS = ("langchain", "langgraph", "langsmith", "pydantic", "headstay")
_MOST_PARTS = 20_000
_SITE = tuple({str(Path(sysconfig.get_path(name)).resolve()) for name in ("purelib", "platlib")})


class ChainContent:
    """Describes values; remembers what it could not look into.

    Attributes:
        opaque: The parts that have no content to compare.
        reads_config: Whether something in it can read any value of the caller's config.
        holds_graph: Whether a compiled graph is in it, whose stream adds up to another value than its answer.
        keeps_history: What in it keeps a conversation of its own, by its class, or an empty text.
    """

    def __init__(self) -> None:
        self.opaque: list[object] = []
        self.reads_config = self.holds_graph = False
        self.keeps_history = ""
        self._under_way: set[int] = set()
        self._parts = 0
        self._home = ""

    def describe(self, value: object) -> object:
        """Return a JSON value that is the same for the same content."""
        if value is None or isinstance(value, (bool, int, float, str, bytes)):
            return value
        self._parts += 1
        if id(value) in self._under_way:
            return "itself"
        if self._parts > _MOST_PARTS:
            return self._unseen(value)
        self._under_way.add(id(value))
        try:
            return self._content(value)
        finally:
            self._under_way.discard(id(value))

    def secrets_of(self, model: object) -> list[str]:
        """Return the hashes of a model's credentials: two accounts share no answers, and no key holds a secret."""
        held = _held(model)
        secrets = {name: value for name, value in held.items() if isinstance(value, SecretStr)}
        return [digest("secret", name, secrets[name].get_secret_value()).hex() for name in sorted(secrets)]

    def _content(self, value: Any) -> object:
        if isinstance(value, (Mapping, list, tuple, set, frozenset)):
            return self._items(cast("Any", value))
        if isinstance(value, (types.CodeType, *_FUNCTIONS, *_GETTERS)):
            return self._code(value)
        if isinstance(value, types.ModuleType):
            return {"module": value.__name__}
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, (*_PLAIN, *_PLAIN_TYPES)) or type(cast("object", value)).__module__ == "typing":
            shown = [value.name, self.describe(value.value)] if isinstance(value, Enum) else repr(cast("object", value))
            return {"class": class_name(type(cast("object", value))), "value": shown}
        return self._made(value)

    def _items(self, value: Any) -> object:
        if isinstance(value, Mapping):
            items = cast("Mapping[object, object]", value).items()
            return {str(key): self.describe(item) for key, item in items}
        if isinstance(value, (set, frozenset)):
            return sorted(meaning_text(self.describe(item)) for item in cast("set[object]", value))
        return [self.describe(item) for item in value]

    def _made(self, value: object) -> object:
        """Describe an object by the class it is of and the values it was made with."""
        kind = type(value)
        if isinstance(value, SecretStr):
            return digest("secret", value.get_secret_value()).hex()
        self._note(value)
        if isinstance(value, BaseModel):
            held = _fields(value, private=not self._is_library(kind.__module__))
        elif is_dataclass(value):
            made = {name: item for name, item in _held(value).items() if not _is_computed(kind, name)}
            held = {**made, **{field.name: getattr(value, field.name, None) for field in fields(value)}}
        elif kind.__module__.startswith("langchain_core.") and isinstance(value, Runnable):  # as RunnableLambda is
            held = {name: item for name, item in vars(value).items() if not _is_computed(kind, name)}
        elif kind.__name__ in _WITHOUT_CONTENT and self._is_library(kind.__module__):
            return kind.__name__
        else:
            return self._unseen(value)
        kept = {name: item for name, item in held.items() if name not in _NOT_CONTENT}
        config = kept.get("config")
        if isinstance(config, Mapping):
            watched = cast("Mapping[str, object]", config)
            kept["config"] = {name: item for name, item in watched.items() if name not in _NOT_CONTENT}
        return {"class": self._class(kind), "held": self.describe(kept), "more": self._more(cast("object", value))}

    def _more(self, value: object) -> object:
        """Describe what a model's fields do not show: its credentials, and what headstay adds to its requests."""
        if not isinstance(value, BaseLanguageModel):
            return None
        tail = value.headstay_binding.tail if isinstance(value, Instrumented) else None
        return [self.secrets_of(cast("object", value)), self.describe(tail)]

    def _note(self, value: object) -> None:
        if isinstance(value, RunnableWithMessageHistory):
            self.keeps_history = self.keeps_history or class_name(type(value))
        if hasattr(value, "get_state") and hasattr(value, "checkpointer"):  # a compiled graph
            self.reads_config = self.holds_graph = True
            if getattr(value, "checkpointer", None):
                self.keeps_history = self.keeps_history or class_name(type(value))

    def _class(self, kind: type) -> object:
        """Describe a class: a library's by its name, the application's own by its code too."""
        told: dict[str, object] = {"class": class_name(kind), "schema": _schema(kind)}
        if not self._is_library(kind.__module__):
            held: dict[str, object] = {name: item for name, item in vars(kind).items() if _is_member(name, item)}
            with self._within(kind.__module__):
                told["code"] = self.describe({name: _unwrapped(held[name]) for name in sorted(held)})
                told["bases"] = [
                    class_name(base) if self._is_library(base.__module__) else self.describe(base)
                    for base in kind.__bases__
                ]
        return told

    def _code(self, function: Any) -> object:
        """Describe code by what it does; what is no function written in Python, by its name and arguments."""
        if isinstance(function, types.FunctionType):
            return self._function(function)
        if isinstance(function, types.CodeType):
            constants = self.describe(function.co_consts)
            return [digest(function.co_code).hex(), constants, list(function.co_names)]
        if isinstance(function, _GETTERS):
            made = cast("tuple[type, tuple[object, ...]]", cast("object", function).__reduce__())
            return self.describe([class_name(made[0]), made[1]])
        if isinstance(function, functools.partial):
            held = cast("functools.partial[object]", function)
            return {"partial": self.describe([held.func, held.args, held.keywords])}
        if isinstance(function, types.MethodType):
            return {"method": self.describe([function.__func__, function.__self__])}
        owner = getattr(function, "__self__", None)
        return {"builtin": f"{function.__module__}.{function.__qualname__}", "of": self.describe(owner)}

    def _function(self, function: types.FunctionType) -> object:
        """Describe a function by its code and constants, its defaults, and what it closes over and refers to."""
        code = function.__code__
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        told_of_run = "run_manager" in arguments and not _READS_RUN.isdisjoint(code.co_names)
        self.reads_config = self.reads_config or "config" in arguments or told_of_run
        told: dict[str, object] = {"function": f"{function.__module__}.{function.__qualname__}"}
        if not self._is_library(function.__module__):
            told["code"] = self.describe(code)
            with self._within(function.__module__):
                told["globals"] = self.describe(self._globals(function))
        cells = [_cell(cell) for cell in function.__closure__ or ()]
        told["bound"] = self.describe([function.__defaults__, function.__kwdefaults__, cells])
        return told

    def _globals(self, function: types.FunctionType) -> dict[str, object]:
        """Return the global values a function refers to, those behind the application's own modules included."""
        names = sorted(set(_names_in(function.__code__)))
        self.reads_config = self.reads_config or not _READS_CONFIG.isdisjoint(names)
        found: dict[str, object] = {name: function.__globals__[name] for name in names if name in function.__globals__}
        for name, value in list(found.items()):
            if isinstance(value, types.ModuleType) and not self._is_library(value.__name__):
                found |= {f"{name}.{inner}": getattr(value, inner) for inner in names if hasattr(value, inner)}
        return found

    @contextmanager
    def _within(self, module: str | None) -> Generator[None]:
        """Look around inside a package: what it uses of others counts by name."""
        outer, self._home = self._home, (module or "").partition(".")[0]
        try:
            yield
        finally:
            self._home = outer

    def _is_library(self, module: str | None) -> bool:
        """Whether a module is no part of the application, whose code may change with each release."""
        top = (module or "").partition(".")[0]
        if top in sys.stdlib_module_names or top.startswith(_FRAMEWORKS):
            return True
        file = getattr(sys.modules.get(module or ""), "__file__", None)
        return self._home not in ("", top) and file is not None and str(Path(file).resolve()).startswith(_SITE)

    def _unseen(self, value: object) -> object:
        self._note(value)
        self.opaque.append(value)
        return {"unseen": class_name(type(value))}


def class_name(kind: type) -> str:
    """Return a class's full name."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _fields(value: BaseModel, *, private: bool) -> dict[str, object]:
    """Return the fields of a pydantic object; of a model, without the clients it made for itself."""
    known = type(value).model_fields
    one: object = value
    if isinstance(one, KeepsCaller) and not isinstance(one, Instrumented):
        names = [name for name in known if name not in _NOT_CONTENT_OF_OURS]
    elif isinstance(one, BaseLanguageModel):
        names = [name for name, field in known.items() if not field.exclude]
    else:
        names = list(known)
    held: dict[str, object] = {name: getattr(value, name, None) for name in names}
    held.update(value.model_extra or {})
    if private:
        held.update({f"private {name}": item for name, item in (value.__pydantic_private__ or {}).items()})
    return held


def _held(value: object) -> dict[str, object]:
    return dict(vars(value)) if hasattr(value, "__dict__") else {}


def _schema(kind: type) -> object:
    if not issubclass(kind, BaseModel) or issubclass(kind, Runnable):
        return None
    try:
        return kind.model_json_schema()
    except (PydanticInvalidForJsonSchema, PydanticUserError):
        return None


def _is_computed(kind: type, name: str) -> bool:
    """Whether an object keeps under a name only what its class has worked out."""
    return isinstance(inspect.getattr_static(kind, name, None), (property, functools.cached_property))


def _is_member(name: str, item: object) -> bool:
    """Whether what a class has under a name is the application's: its methods and constants of any kind."""
    if name.startswith("__") or name == "_abc_impl":
        return isinstance(item, _MEMBERS)
    return not isinstance(item, _FIELDS)


def _unwrapped(member: object) -> object:
    if isinstance(member, (classmethod, staticmethod)):
        return cast("Any", member).__func__
    if isinstance(member, functools.cached_property):
        return cast("Any", member).func
    return [member.fget, member.fset] if isinstance(member, property) else member


def _names_in(code: types.CodeType) -> Iterator[str]:
    """Yield the global names and attributes that a function uses, those of functions inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


def _cell(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
