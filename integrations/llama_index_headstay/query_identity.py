"""Which query engine this is, by content: model and parameters, prompts, retriever parameters, response mode.

Two engines that differ in anything that can change an answer must not share answers. What shows no content to compare
(an index, a vector store, the application's own classes and functions) is only itself: it shares with nothing and with
no other process, unless the engine was given a name. Of an object of the application's own class count what LlamaIndex
gave it, the models, retrievers and prompts in it, and of a pydantic class the declared fields that are no whole
numbers, which may be counters. Credentials and headers of a request are never looked at. An engine or a model inside
that is bound to a tenant, a user or a version binds what is around it, too.
"""

import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, cast
from uuid import uuid4

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.data_structs.data_structs import IndexStruct
from llama_index.core.prompts.base import BasePromptTemplate
from llama_index.core.prompts.mixin import PromptMixin
from llama_index.core.schema import BaseNode
from llama_index.core.tools.types import AsyncBaseTool, BaseTool
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from llama_index_instrumentation import DispatcherSpanMixin
from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

from headstay.canonical import digest, meaning_text
from headstay.semantic.forking import ForkedLock
from llama_index_headstay.binding import Binding
from llama_index_headstay.identity import name_of
from llama_index_headstay.query_caching import Caching
from llama_index_headstay.secrets import without_secrets

# How an engine is watched and how its requests travel, not what it answers.
_WATCHED = ("callback_manager", "verbose", "show_progress", "rate_limiter", "num_workers", "embeddings_cache")
_CARRIED = ("timeout", "max_retries", "reuse_client", "default_headers", "extra_headers", "headers")
_WORKED_OUT = ("template_vars",)  # of a set: in another order in each process
_NOT_CONTENT = frozenset((*_WATCHED, *_CARRIED, *_WORKED_OUT, "use_async"))
_LIBRARIES = ("llama_index", "llama_index_headstay", "pydantic")
_COMPONENTS: tuple[type, ...] = (PromptMixin, DispatcherSpanMixin, BaseTool, AsyncBaseTool)
"""What of LlamaIndex keeps all it was made with in its attributes, beside dataclasses and pydantic classes."""
_MODELS: tuple[type, ...] = (BaseLLM, BaseEmbedding)
"""Their settings by name may hold credentials and headers at any depth; elsewhere such a name is content, as a variable
of a prompt or a field to filter by."""
_SETTINGS: tuple[type, ...] = (str, bool, float, Enum)
_CORPUS: tuple[type, ...] = (BaseNode, BasePydanticVectorStore, IndexStruct)
"""The documents themselves: `version=` says when they change."""
_EMPTY = "_empty_response"
_NODES = "_node_ids"
_MOST_ITEMS = 1_000
_MOST_PARTS = 10_000
_MOST_KNOWN = 4_096

_names: dict[int, tuple[Callable[[], object], str]] = {}
_schemas: "weakref.WeakKeyDictionary[type, str]" = weakref.WeakKeyDictionary()
_lock = ForkedLock()


class _TooManyError(Exception):
    """There is more in an engine than is worth comparing in each call."""


@dataclass(slots=True)
class EngineContent:
    """What was found in an engine.

    Attributes:
        opaque: The parts that have no content to compare.
        classes: The pydantic classes in it, by name: the forms its answers may have.
        empty_texts: What it answers where nothing was found.
        name: What it is known by.
    """

    opaque: list[object] = field(default_factory=list[object])
    classes: dict[str, type[BaseModel]] = field(default_factory=dict[str, type[BaseModel]])
    empty_texts: set[str] = field(default_factory=set[str])
    name: str = ""
    _under_way: set[int] = field(default_factory=set[int])
    _known: set[int] = field(default_factory=set[int])
    _parts: int = 0
    _models: int = 0
    _large: bool = False

    @property
    def unseen_classes(self) -> tuple[str, ...]:
        """The classes of the parts that have no content to compare."""
        return tuple(sorted({class_name(type(part)) for part in self.opaque}))

    def describe(self, value: object) -> object:
        """Return a JSON value that is the same for the same content."""
        if value is None or (isinstance(value, (bool, int, float, str, bytes)) and not isinstance(value, Enum)):
            return value
        self._parts += 1
        if id(value) in self._under_way:
            return "itself"
        if self._parts > _MOST_PARTS:
            raise _TooManyError
        self._under_way.add(id(value))
        try:
            return self._content(value)
        finally:
            self._under_way.discard(id(value))

    def _content(self, value: object) -> object:
        if isinstance(value, Enum):
            return [class_name(type(value)), value.name]
        if isinstance(value, (Mapping, list, tuple, set, frozenset)):
            return self._items(cast("Any", value))
        if isinstance(value, (SecretStr, SecretBytes)):
            return "secret"
        if isinstance(value, type):
            return self._class(cast("type[object]", value))
        if isinstance(value, (FunctionType, MethodType, BuiltinFunctionType, partial)):
            return self._function(cast("Any", value))
        return self._unseen(value) if isinstance(value, _CORPUS) else self._made(value)

    def _items(self, value: Any) -> object:
        held = cast("Mapping[object, object]", value) if isinstance(value, Mapping) else None
        items: Collection[object] = cast("Any", value) if held is None else held.values()
        if len(items) > _MOST_ITEMS and not all(type(item) in (str, int, float) for item in items):
            self._large = True  # texts to search in, most likely: no content of the engine
            return "many"
        if held is not None:
            return self._named(held, _shown(held) if self._models else held)
        if isinstance(value, (set, frozenset)):
            return sorted(meaning_text(self.describe(item)) for item in cast("set[object]", value))
        return [self.describe(item) for item in items]

    def _made(self, value: object) -> object:
        """Describe an object by its class and the values it was made with."""
        held = _held_by(value)
        if held is None:
            return self._unseen(value)
        kind = type(value)
        own = not _is_library(kind.__module__)
        if own:
            held = _told_by_own(value, held)
        held = _bound(value, held)
        if _NODES in held and _are_all(held[_NODES], held.get("_index")):
            held[_NODES] = "all"
        is_model = isinstance(value, _MODELS)
        self._models += is_model
        try:
            told = {"class": class_name(kind), "held": self._named(held, _shown(held))}
        finally:
            self._models -= is_model
        large, self._large = self._large, False
        return [told, self._unseen(value)] if large or own else told

    def _named(self, held: Mapping[Any, Any], shown: Collection[object]) -> dict[str, object]:
        """Describe values by name."""
        told: dict[str, object] = {}
        for key, item in held.items():
            name = str(key)
            if name == _EMPTY and isinstance(item, str):
                self.empty_texts.add(item.strip())
            if key in shown:
                told[name] = self.describe(item)
        return told

    def _class(self, kind: type) -> object:
        name = class_name(kind)
        if issubclass(kind, BaseModel):
            self.classes[name] = kind
            schema = _schema(kind)
            return [name, self._unseen(kind) if schema is None else schema]
        return name if _is_library(kind.__module__) else [name, self._unseen(cast("object", kind))]

    def _function(self, function: Any) -> object:
        """Describe a library's function by its name and defaults; the application's own has no content to compare."""
        if isinstance(function, partial):
            held = cast("partial[object]", function)
            return {"partial": self.describe([held.func, held.args, held.keywords])}
        if isinstance(function, MethodType):
            return {"method": [function.__func__.__qualname__, self.describe(function.__self__)]}
        module, name = str(function.__module__), str(function.__qualname__)
        if isinstance(function, BuiltinFunctionType):
            return f"{module}.{name}"
        if not _is_library(module) or function.__closure__ or "<lambda>" in name:
            return self._unseen(function)
        return {"function": f"{module}.{name}", "defaults": self.describe(function.__defaults__)}

    def _unseen(self, value: object) -> object:
        if id(value) not in self._known:
            self._known.add(id(value))
            self.opaque.append(value)
        return {"unseen": class_name(type(value))}


def read_engine(engine: PromptMixin, name: str | None) -> EngineContent:
    """Name a query engine by what is in it; whatever of it changes changes the name.

    Args:
        engine: The query engine.
        name: Stands for the parts that show no content; None: they are only themselves.
    """
    content = EngineContent()
    try:
        described = meaning_text(content.describe(engine))
    except (_TooManyError, RecursionError):
        content = EngineContent(opaque=[engine])
        described = meaning_text([class_name(type(engine)), EngineContent().describe(engine.get_prompts())])
    names = [f"name {name}"] if name is not None else [f"own {_own_name(part)}" for part in content.opaque]
    content.name = digest(described, *names).hex()
    return content


def class_name(kind: type) -> str:
    """Return a class's full name."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _own_name(part: object) -> str:
    """Return the name of an object: the same as long as it lives, and never given to another."""
    with _lock:
        known = _names.get(id(part))
        if known is not None and known[0]() is part:
            return known[1]
        name = uuid4().hex
        _names[id(part)] = (_held(part), name)
        while len(_names) > _MOST_KNOWN:  # who is dropped gets another name, and so no answer of before
            del _names[next(iter(_names))]
    return name


def _held(part: object) -> Callable[[], object]:
    """Hold an object loosely where that is possible."""
    try:
        return weakref.ref(part)
    except TypeError:
        return lambda: part


def _held_by(value: object) -> dict[str, object] | None:
    """Return the attributes that an object was made with; None where they cannot be told."""
    if isinstance(value, BaseModel):
        held = {name: getattr(value, name, None) for name in type(value).model_fields} | (value.model_extra or {})
        private = value.__pydantic_private__ if isinstance(value, BasePromptTemplate) else None
        return held | (private or {})
    if isinstance(value, _COMPONENTS):
        return dict(vars(value))
    if is_dataclass(value):
        return {each.name: getattr(value, each.name, None) for each in fields(value)} | getattr(value, "__dict__", {})
    return None


def _told_by_own(value: object, held: Mapping[str, object]) -> dict[str, object]:
    """Leave out of an application's own object what may be a counter or a memory, which changes with each query."""
    kind = type(value)
    known = _library_names(kind)
    declared = kind.model_fields if issubclass(kind, BaseModel) else {}
    told = {
        name: item
        for name, item in held.items()
        if name in known or _is_component(item) or (name in declared and isinstance(item, _SETTINGS))
    }
    return {**told, "metadata": value.metadata} if isinstance(value, BaseLLM) else told


def _bound(value: object, held: dict[str, object]) -> dict[str, object]:
    """Say for whom, and for which documents, a part of headstay's answers now, instead of how it finds that out.

    Raises:
        UnnamedError: It does not know.
        ConfigError: The same.
    """
    caching, binding = held.get("_caching"), getattr(value, "headstay_binding", None)
    if isinstance(caching, Caching):
        return {name: item for name, item in held.items() if name not in ("_caching", "_open")} | caching.names()
    if isinstance(binding, Binding):
        tail = name_of("tail", binding.tail) if binding.tail_affects_answer else None
        return {**held, "tenant": name_of("tenant", binding.tenant), "tail": tail}
    return held


def _shown(held: Mapping[Any, Any]) -> set[object]:
    """Return the names that count: no credentials, and not how an engine is watched or its requests travel."""
    names = without_secrets(dict.fromkeys(held))
    return {name for name in names if str(name).lstrip("_").replace("-", "_") not in _NOT_CONTENT}


def _is_component(value: object) -> bool:
    """Whether a value, or all in it, are parts of LlamaIndex that make answers: models, retrievers, prompts."""
    if isinstance(value, (list, tuple)) and value:
        return all(map(_is_component, cast("list[object]", value)))
    if isinstance(value, dict) and value:
        return all(map(_is_component, cast("dict[object, object]", value).values()))
    return isinstance(value, (*_COMPONENTS, BasePromptTemplate))


def _library_names(kind: type) -> set[str]:
    """Return the attributes that an application's own class has from a class of LlamaIndex."""
    names: set[str] = set()
    for base in kind.__mro__:
        if _is_library(base.__module__):
            made = vars(base).get("__init__")
            names.update(made.__code__.co_names if isinstance(made, FunctionType) else ())
            names.update(base.model_fields if issubclass(base, BaseModel) else ())
    return names


def _are_all(nodes: object, index: object) -> bool:
    """Whether a retriever names all nodes of its index, as an index does that makes one: no choice of anybody's."""
    known: object = getattr(getattr(index, "index_struct", None), "nodes_dict", None)
    return isinstance(known, dict) and nodes == list(cast("dict[str, str]", known).values())


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in _LIBRARIES


def _schema(kind: type[BaseModel]) -> str | None:
    """Return the JSON schema of a class; worked out once, for it takes longer than all else."""
    try:
        known = _schemas.get(kind)
        if known is None:
            known = _schemas[kind] = meaning_text(kind.model_json_schema())
    except (PydanticInvalidForJsonSchema, PydanticUserError):
        return None
    return known
