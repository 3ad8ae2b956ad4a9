"""Answers that were written by people, put where a chain or a model will look for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from headstay.errors import ConfigError
from headstay.semantic.answer import Answer, read_answer
from headstay.semantic.chain import chain_request, named
from headstay.semantic.comparing import embed_query
from headstay.semantic.entry import Entry, new_id
from headstay.semantic.faq import FaqRow
from headstay.semantic.query import Query, Templates, looks_composed, normal_text, read_query
from headstay.semantic.reasons import Reason
from headstay.semantic.request import AskedRequest, Turn
from headstay.semantic.scope import exact_key, family_key, scope_key

if TYPE_CHECKING:
    from headstay.semantic.embedder_vectors import Embedder

_SAME_SPACE = 0.99
_MARK = "__headstay__"  # what a chain's kept answer has where it is a message; see langchain_headstay.kept_values


@dataclass(frozen=True, slots=True)
class Spot:
    """Where the answer to a question is looked for.

    Attributes:
        request: Who asks what, as far as that is known.
        query: What is compared by meaning.
        family: Key of all but the last human text.
        scope: Key of all but the query.
        body: The answer in the host's own form.
    """

    request: AskedRequest
    query: Query
    family: str
    scope: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain that was made with `cached(..., name=name)` and whose input is the question alone.

    Attributes:
        name: Its name.
        key: The input's key that holds the question, as in `cached(query=key)`; None: the input is the question.
        tenant: Whom the answers belong to, or None.
        user: The same within a tenant, or None.
        version: What they depend on, or None; a row's own goes first.
        message: Whether the chain returns a message, not a text.
    """

    name: str
    key: str | None = None
    tenant: str | None = None
    user: str | None = None
    version: str | None = None
    message: bool = False

    def spot(self, row: FaqRow, fingerprint: str) -> Spot:
        """Find the place of an answer, in the vector space of an embedder."""
        given: object = row.question if self.key is None else {self.key: row.question}
        declared = None if self.key is None else row.question
        asked = chain_request(named(self.name), given, declared, {"given": {}, "configurable": {}}, key=self.key)
        request = asked.named(tenant=self.tenant, user=self.user, version=row.version or self.version)
        query = read_query(request, Templates())
        family = family_key(request, embedder_fingerprint=fingerprint)
        scope = scope_key(request, embedder_fingerprint=fingerprint, query=query)
        return Spot(request, query, family, scope, {"value": _message(row.answer) if self.message else row.answer})


@dataclass(frozen=True, slots=True)
class Like:
    """The place of an answer that is kept already: the same model or chain, system text, history, tenant, version.

    Attributes:
        entry: That answer.
    """

    entry: Entry

    def spot(self, row: FaqRow, fingerprint: str) -> Spot:  # noqa: ARG002 - the entry's keys hold it
        """Find the place of an answer.

        Raises:
            ConfigError: The row is for another version, or nothing can be put beside this entry.
        """
        kept = self.entry
        if row.version not in {None, kept.version}:
            raise ConfigError(
                f"{row.where}: it is for version {row.version!r}, and entry {kept.id} for {kept.version!r}; "
                "nothing was imported"
            )
        before, after = _around(kept)
        question = normal_text(row.question)
        limit = Reason.TEMPLATED_TEXT if looks_composed(question) else None
        turn = Turn("user", f"{before}{question}{after}")
        request = AskedRequest((turn,), tenant=kept.tenant, user=kept.user, version=kept.version)
        query = Query(question, "declared", before, after, limit)
        return Spot(request, query, kept.family, kept.scope, _body_like(kept, row.answer))

    def check_space(self, embedder: "Embedder") -> None:
        """Make sure that an embedder is the one the entry was made with.

        Raises:
            ConfigError: It is another one.
            EmbedderError: It failed.
        """
        if self.entry.vector is None:
            return
        made = embedder.embed([self.entry.query])[0].tobytes()
        if len(made) != len(self.entry.vector) or _product(made, self.entry.vector) < _SAME_SPACE:
            raise ConfigError(f"entry {self.entry.id} was made with another embedder; name it with --embedder")


def entries_of(
    rows: Sequence[FaqRow],
    place: Chain | Like,
    *,
    embedder: "Embedder",
    made: float,
    ttl: float | None = None,
    tags: Sequence[str] = (),
) -> tuple[list[Entry], list[tuple[FaqRow, Reason]]]:
    """Make entries of questions and answers.

    Args:
        rows: The questions and answers.
        place: Whose answers they are to be.
        embedder: The one that will look them up.
        made: Their age counts from here, in seconds since the epoch.
        ttl: Seconds they may be served for; None: no limit.
        tags: Names on each of them, beside its own.

    Returns:
        The entries, and the rows that will answer identical questions only, with the reason.

    Raises:
        ConfigError: A row cannot be put there.
        EmbedderError: The embedder failed.
    """
    entries: list[Entry] = []
    limited: list[tuple[FaqRow, Reason]] = []
    known: dict[str, int] = {}
    for row in rows:
        spot = place.spot(row, embedder.fingerprint)
        exact = exact_key(spot.family, spot.request.turns[0].text)
        if (first := known.setdefault(exact, row.line)) != row.line:
            raise ConfigError(f"{row.where}: the question of line {first} again; nothing was imported")
        vectors, limit = embed_query(embedder, spot.request, spot.query)
        if limit is not None:
            limited.append((row, limit))
        entry = _entry(spot, row, exact, None if vectors is None else vectors[0].tobytes())
        expires = None if ttl is None else made + ttl
        names = tuple(dict.fromkeys((*tags, *row.tags)))
        entries.append(replace(entry, created=made, used=made, expires=expires, tags=names))
    return entries, limited


def _entry(spot: Spot, row: FaqRow, exact: str, vector: bytes | None) -> Entry:
    request = spot.request
    text = request.turns[0].text
    return Entry(
        id=new_id(),
        scope=spot.scope,
        exact=exact,
        query=spot.query.text,
        answer=Answer(row.answer, spot.body, "stop").to_json(),
        vector=vector,
        created=0.0,
        tenant=request.tenant,
        user=request.user,
        version=request.version,
        family=spot.family,
        text=None if text == spot.query.text else text,
    )


def _around(kept: Entry) -> tuple[str, str]:
    """Return what stands before and behind the question of an entry.

    Raises:
        ConfigError: It cannot be told which part of its text the question is.
    """
    if kept.text is None:
        if kept.vector is None and looks_composed(kept.query):
            raise ConfigError(f"entry {kept.id} was asked with more than a question in its text; choose another")
        return "", ""
    text = normal_text(kept.text)
    before, found, after = text.partition(kept.query)
    if not found or kept.query in after:
        raise ConfigError(f"the question of entry {kept.id} does not stand in its text just once; choose another")
    return before, after


def _body_like(kept: Entry, text: str) -> Mapping[str, Any]:
    """Write an answer in the form of another.

    Raises:
        ConfigError: That one holds more than a text.
    """
    answer = read_answer(kept.answer)
    if answer is None:
        raise ConfigError(f"the answer of entry {kept.id} cannot be read; choose another entry")
    if "value" not in answer.body:
        return {}  # a model's reply: a host makes one of the text
    value: object = answer.body["value"]
    if isinstance(value, str):
        return {"value": text}
    if isinstance(value, dict) and cast("dict[str, object]", value).get(_MARK) == "message":
        return {"value": _message(text)}
    raise ConfigError(f"the answer of entry {kept.id} holds more than a text; a FAQ cannot be put beside it")


def _message(text: str) -> dict[str, object]:
    return {_MARK: "message", "message": {"type": "ai", "data": {"content": text}}}


def _product(one: bytes, other: bytes) -> float:
    """Return the cosine similarity of two unit vectors."""
    pairs = zip(memoryview(one).cast("f"), memoryview(other).cast("f"), strict=True)
    return sum(a * b for a, b in pairs)
