"""The semantic cache: asks the pure decisions in order, and never raises inside a call."""

import asyncio
import logging
import os
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from headstay.errors import ConfigError, EmbedderError, SemanticStoreError
from headstay.semantic.answer import Answer, not_admitted, read_answer
from headstay.semantic.comparing import BadVectorError, unit_vector
from headstay.semantic.control import Mode, check_mode, current_mode
from headstay.semantic.decide import THRESHOLD, Candidate, Decision, decide, tighter
from headstay.semantic.eligible import never
from headstay.semantic.entry import Entry, Filter, new_id
from headstay.semantic.flight import Flight, ashare, share
from headstay.semantic.forking import ForkedLock
from headstay.semantic.lookup import Admission, Lookup
from headstay.semantic.metrics import Counts, Metrics
from headstay.semantic.policy import ToolCalls, check_feedback, check_name, check_tags, read_policy
from headstay.semantic.query import Query, Templates, learn, learn_all, read_query
from headstay.semantic.reasons import Reason
from headstay.semantic.request import AskedRequest
from headstay.semantic.scope import exact_key, family_key, scope_key
from headstay.semantic.store import Store

if TYPE_CHECKING:
    from headstay.semantic.embedder_vectors import Checked, Embedder

SWITCH = "HEADSTAY_CACHE"
"""Environment variable; "off" switches every semantic cache of the process off, at once."""

_OFF = ("off", "0", "false", "no", "n", "none", "disabled")
_NEIGHBOURS = 8
_FAMILIES = 1_024
_TEXTS = 64
_UNSHARED = 1_024
_UNREADABLE = "the kept answer cannot be read"

_log = logging.getLogger("headstay.semantic")


class Cache:
    """Answers repeated and reworded questions; shared by threads, and through its file by processes.

    Args:
        store: A path, a `Store`, or None to keep everything in memory.
        embedder: None for the bundled model, or what `as_embedder` takes.
        threshold: Least cosine similarity of two questions that share an answer, over 0 and up to 1.
        ttl: Seconds (or a timedelta) an answer may be served for, counted from its making; None: no limit.
        jitter: Share of the TTL by which it is shortened at random.
        tool_calls: "never" keeps no answer that asks for tools; "exact" replays them for identical requests.
        tags: Names on every kept entry.
        dry_run: Look up and compare with the fresh answer, and serve nothing.
        flight: Seconds a call waits for another that fetches the same answer; 0 does not wait.
        max_entries: Most entries in the store; the ones that were not served for longest go. For a path or None.
        max_bytes: Most bytes of entries. For a path or None.
        now: The clock.

    Raises:
        ConfigError: A setting cannot work.
        SemanticStoreError: The file cannot be used.
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str] | None = None,
        *,
        embedder: object = None,
        threshold: float = THRESHOLD,
        ttl: float | timedelta | None = None,
        jitter: float = 0.1,
        tool_calls: ToolCalls = "never",
        tags: Sequence[str] = (),
        dry_run: bool = False,
        flight: float = 30.0,
        max_entries: int | None = None,
        max_bytes: int | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.policy = read_policy(
            threshold=threshold,
            ttl=ttl,
            jitter=jitter,
            tool_calls=tool_calls,
            tags=tags,
            dry_run=dry_run,
            flight=flight,
        )
        self.embedder: Embedder = _needed("headstay.semantic.embedder").as_embedder(embedder)
        given = {"max_entries": max_entries, "max_bytes": max_bytes}
        limits = {name: limit for name, limit in given.items() if limit is not None}
        if store is None or isinstance(store, (str, os.PathLike)):
            self.store: Store = _needed("headstay.semantic.sqlite_store").SQLiteStore(store, **limits)
        elif isinstance(store, type) or not hasattr(store, "get_exact"):
            named = store.__name__ if isinstance(store, type) else type(store).__name__
            raise ConfigError(f"a semantic cache in {named}: give a path, a store such as SQLiteStore(path), or None")
        elif limits:
            raise ConfigError(f"{' and '.join(limits)}: set on the store itself, which was given")
        else:
            self.store = store
        if not callable(now):
            raise ConfigError(f"now={now!r}: give a function that returns the seconds since the epoch, as time.time")
        self.enabled = True
        self._now = now
        self._vectors: Checked = _needed("headstay.semantic.embedder_vectors").Checked(type(self.embedder).__name__)
        self._unshared: OrderedDict[str, None] = OrderedDict()
        self._counts = Counts()
        self._families: OrderedDict[str, Templates] = OrderedDict()
        self._lock = ForkedLock()
        self._said: set[str] = set()

    def look_up(
        self,
        request: AskedRequest,
        *,
        mode: Mode | None = None,
        threshold: float | None = None,
        refused: Reason | None = None,
        make: Callable[[Lookup], Any] | None = None,
        count: bool = True,
    ) -> Lookup:
        """Find an answer.

        Args:
            request: What is asked.
            mode: What this call asks of the cache; by default that of `headstay.semantic.control.caching`.
            threshold: For this call; it can be stricter than configured and never laxer.
            refused: Why the host must not have this call answered, if so.
            make: Makes the host's `reply` of a hit; where it raises, the kept answer is not served.
            count: Whether it counts; with False the caller says `note` when it has decided.

        Returns:
            The hit, or the reason for the miss. Nothing is ever raised but a setting that cannot work.
        """
        if refused is None:
            lookup = self._servable(self._answered(request, mode, threshold), make)
        else:
            lookup = Lookup(request, self._now(), check_mode(mode or current_mode()), reason=refused)
        if count:
            self.note(lookup)
        return lookup

    async def alook_up(self, request: AskedRequest, **how: Any) -> Lookup:
        """Do what `look_up` does, without blocking the event loop."""
        return await asyncio.to_thread(self.look_up, request, **how)

    def note(self, lookup: Lookup) -> None:
        """Count a question, and the use of the entry that was served."""
        if lookup.entry is not None:
            self._touch(lookup.entry, lookup.at)
        self._counts.looked_up(lookup)

    def admit(self, lookup: Lookup, answer: Answer) -> Admission:
        """Keep a fresh answer, if it may be kept.

        Args:
            lookup: What `look_up` returned for the request.
            answer: The answer to it.
        """
        try:
            admission = self._admitted(lookup, answer)
        except Exception as problem:  # noqa: BLE001 - accounting never raises inside a call
            self._say(problem)
            admission = Admission(reason=_failed(problem))
        return self._concluded(lookup, admission)

    def refuse(self, lookup: Lookup, reason: Reason) -> Admission:
        """Count an answer that the host must not have kept."""
        return self._concluded(lookup, Admission(reason=reason))

    async def aadmit(self, lookup: Lookup, answer: Answer) -> Admission:
        """Keep a fresh answer, without blocking the event loop."""
        return await asyncio.to_thread(self.admit, lookup, answer)

    def join(self, ask: Callable[[], Lookup]) -> tuple[Lookup, Flight | None]:
        """Look a request up; of identical ones that are under way together, one asks the model.

        Args:
            ask: Calls `look_up` with `count=False`; it may be called again.

        Returns:
            The lookup, counted once, and a flight that the caller has to land whatever comes of it, or None.
        """
        lookup, flight = share(ask, self.fly, self.policy.flight)
        self.note(lookup)
        return lookup, flight

    async def ajoin(self, ask: Callable[[], Lookup]) -> tuple[Lookup, Flight | None]:
        """Do what `join` does, without blocking the event loop."""
        lookup, flight = await ashare(ask, self.fly, self.policy.flight)
        if lookup.entry is None:
            self.note(lookup)
        else:  # the store may be busy; a hit has no flight that would be lost if this is cancelled
            await asyncio.to_thread(self.note, lookup)
        return lookup, flight

    def fly(self, lookup: Lookup) -> Flight | None:
        """Claim a missed request, so that identical ones wait for its answer; None where there is nothing to share."""
        shareable = lookup.entry is None and lookup.exact and lookup.mode == "use" and not self.policy.dry_run
        if not shareable or not self.policy.flight or lookup.exact in self._unshared:
            return None
        flight = Flight.begin(self.store, lookup.exact, self.policy.flight, self._now)
        if flight is not None and flight.leads and not lookup.outdated and self._came(lookup.exact):
            flight.land()  # another call was done between the look and the claim: look again
            return replace(flight, owner="")
        return flight

    def explain(
        self, request: AskedRequest, *, threshold: float | None = None, refused: Reason | None = None
    ) -> Lookup:
        """Decide as `look_up` would, count nothing, serve nothing: see `Lookup.explain`."""
        if refused is not None:
            return Lookup(request, self._now(), reason=refused)
        return self._servable(self._answered(request, "use", threshold), None)

    def feedback(self, entry: str, *, wrong: bool) -> bool:
        """Judge a served answer. One that was called wrong more often than right is not served any more.

        Args:
            entry: The entry's name, as the reply says it.
            wrong: Whether the answer was wrong.

        Returns:
            Whether the entry is known.

        Raises:
            ConfigError: `entry` is no name, or `wrong` neither True nor False.
        """
        check_feedback(entry, wrong)
        return self.store.feedback(entry, wrong=wrong)

    def forget(self, *, tenant: str | None = None, user: str | None = None) -> int:
        """Remove a user's or a tenant's answers and every trace of them from the store's files.

        Raises:
            ConfigError: Neither is named, or by something that is no name.
        """
        if check_name("tenant", tenant) is None and check_name("user", user) is None:
            raise ConfigError("forget(): say whose answers: user=, tenant=, or both")
        return self.store.forget(Filter(tenant=tenant, user=user))

    def invalidate(self, *, tags: Sequence[str] = (), version: str | None = None, tenant: str | None = None) -> int:
        """Retire answers by tag, version or tenant. Returns how many there were.

        Raises:
            ConfigError: Nothing is named (`clear` retires all), or by something that is no name.
        """
        names = check_tags(tags)
        if not names and check_name("version", version) is None and check_name("tenant", tenant) is None:
            raise ConfigError("invalidate(): say which: tags=, version= or tenant=; clear() retires all")
        return self.store.remove(Filter(tags=names or None, version=version, tenant=tenant))

    def clear(self) -> int:
        """Retire every answer. Returns how many there were."""
        with self._lock:
            self._families.clear()
        return self.store.remove(Filter())

    def metrics(self) -> Metrics:
        """Return what this object did in this process."""
        return self._counts.snapshot()

    def close(self) -> None:
        """Let go of the store's files. A later use opens them again."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def _servable(self, lookup: Lookup, make: Callable[[Lookup], Any] | None) -> Lookup:
        """Read the answer that was found; a miss where it must not or cannot be served."""
        if lookup.entry is None:
            return lookup
        missed = replace(lookup, entry=None, tier=None)
        answer = read_answer(lookup.entry.answer)
        if answer is None:  # written by another version, or damaged
            return replace(missed, reason=Reason.STORE_FAILED, outdated=True, detail=_UNREADABLE)
        if answer.tool_calls and (self.policy.tool_calls != "exact" or lookup.tier != "exact"):
            return replace(missed, reason=Reason.TOOL_CALLS_NOT_REPLAYED, outdated=True)
        if self.policy.dry_run:
            return replace(missed, reason=Reason.DRY_RUN, shadow=lookup.entry)
        found = replace(lookup, answer=answer)
        try:
            return found if make is None else replace(found, reply=make(found))
        except Exception as problem:  # noqa: BLE001 - what a store holds is not to be trusted
            self._say(problem)
            return replace(missed, reason=Reason.STORE_FAILED, outdated=True, detail=_UNREADABLE)

    def _came(self, exact: str) -> bool:
        try:
            return self.store.get_exact(exact, self._now()) is not None
        except SemanticStoreError:
            return False

    def _concluded(self, lookup: Lookup, admission: Admission) -> Admission:
        """Count an admission; nobody waits again for an answer that is not kept."""
        self._counts.admitted(admission)
        if lookup.exact and lookup.mode == "use":
            with self._lock:
                self._unshared.pop(lookup.exact, None)
                if admission.entry is None:
                    self._unshared[lookup.exact] = None
                while len(self._unshared) > _UNSHARED:
                    self._unshared.popitem(last=False)
        return admission

    def _answered(self, request: AskedRequest, mode: Mode | None, threshold: float | None) -> Lookup:
        start = Lookup(request, self._now(), check_mode(mode or current_mode()))
        if not self.enabled or os.environ.get(SWITCH, "").strip().lower() in _OFF:
            return replace(start, reason=Reason.DISABLED)
        if start.mode == "bypass":
            return replace(start, reason=Reason.BYPASSED)
        strict = tighter(self.policy.threshold, threshold)
        try:
            return self._decided(start, strict)
        except Exception as problem:  # noqa: BLE001 - the user's call goes on without the cache
            self._say(problem)
            return replace(start, reason=_failed(problem), detail=type(problem).__name__)

    def _decided(self, start: Lookup, threshold: float) -> Lookup:
        request = start.request
        refused = never(request)
        if refused is not None:  # every step of an agent comes by here: no key, no store
            return replace(start, reason=refused, detail=request.opaque)
        fingerprint = self.embedder.fingerprint
        family = family_key(request, embedder_fingerprint=fingerprint)
        query = read_query(request, self._templates(family))
        text = request.turns[request.asking].text if request.asking is not None else ""
        scope = scope_key(request, embedder_fingerprint=fingerprint, query=query)
        keyed = replace(start, query=query, family=family, scope=scope, exact=exact_key(family, text))
        if start.mode == "refresh":
            return replace(keyed, reason=Reason.REFRESHED)
        kept = self.store.get_exact(keyed.exact, start.at)
        kept = kept if kept is not None and _belongs(kept, request) else None
        wrong = kept is not None and kept.wrong > kept.confirmed
        if kept is not None and not wrong:
            return replace(keyed, entry=kept, tier="exact", score=1.0)
        found = self._nearest(keyed, query, threshold)
        return replace(found, reason=Reason.MARKED_WRONG, outdated=True) if wrong and found.entry is None else found

    def _nearest(self, keyed: Lookup, query: Query, threshold: float) -> Lookup:
        """Look for a reworded question, where the embedder can be trusted with this one."""
        vector, limit = self._vector(keyed.request, query)
        if vector is None:
            return replace(keyed, reason=limit, limit=limit)
        near = self.store.nearest(keyed.scope, vector, _NEIGHBOURS, keyed.at)
        scored = [one for one in near if _belongs(one.entry, keyed.request)]
        good = [one for one in scored if one.entry.wrong <= one.entry.confirmed]
        candidates = [Candidate(one.entry, one.entry.query, one.score) for one in good]
        decision: Decision[Entry] = decide(query.text, candidates, threshold=threshold)
        reason = Reason.MARKED_WRONG if scored and not good else decision.reason
        hit = decision.hit
        same = hit is not None and hit.exact == keyed.exact  # it came after the exact look
        return replace(
            keyed,
            vector=vector,
            entry=hit,
            tier="exact" if same else "semantic" if hit is not None else None,
            score=1.0 if same else decision.score,
            reason=reason,
            decision=decision,
        )

    def _vector(self, request: AskedRequest, query: Query) -> tuple[bytes | None, Reason | None]:
        """Embed a query, or say why it must not be compared by meaning."""
        return unit_vector(self.embedder, self._vectors, request, query)

    def _admitted(self, lookup: Lookup, answer: Answer) -> Admission:
        if lookup.shadow is not None:
            shown = read_answer(lookup.shadow.answer)
            self._counts.shadowed(same=shown is not None and shown.text == answer.text)
            return Admission(reason=Reason.DRY_RUN)
        refused = self._refusal(lookup, answer)
        if refused is not None or lookup.query is None:
            return Admission(reason=refused)
        vector = lookup.vector
        if vector is None and (lookup.mode == "refresh" or lookup.outdated):  # it was not compared
            vector, _ = self._vector(lookup.request, lookup.query)
        entry = self._entry(lookup, answer, None if answer.tool_calls else vector)
        outcome = self.store.put(entry, replace=lookup.outdated or lookup.mode == "refresh")
        if outcome == "stored" and lookup.mode != "refresh":
            self._learn(lookup.family, entry.text or entry.query)
        elif outcome == "too_large":
            return Admission(reason=Reason.NOT_ADMITTED_TOO_LARGE)
        there = entry if outcome == "stored" else self.store.get_exact(lookup.exact, self._now())
        return Admission(there.id if there is not None else None)

    def _refusal(self, lookup: Lookup, answer: Answer) -> Reason | None:
        if lookup.mode == "no_store":
            return Reason.NOT_ADMITTED_CALLER
        if not lookup.exact:
            return lookup.reason
        return not_admitted(answer, tool_calls=self.policy.tool_calls == "exact")

    def _entry(self, lookup: Lookup, answer: Answer, vector: bytes | None) -> Entry:
        request, made = lookup.request, self._now()
        ttl = self.policy.ttl
        # not for secrecy: so that answers of one minute do not all expire in one minute
        expires = None if ttl is None else made + ttl * (1 - self.policy.jitter * random.random())
        query = lookup.query.text if lookup.query is not None else ""
        whole = request.turns[request.asking].text if request.asking is not None else ""
        return Entry(
            id=new_id(),
            family=lookup.family,
            scope=lookup.scope,
            exact=lookup.exact,
            query=query,
            answer=answer.to_json(),
            vector=vector,
            created=made,
            expires=expires,
            tenant=request.tenant,
            user=request.user,
            version=request.version,
            tags=self.policy.tags,
            text=None if whole == query else whole,
            used=made,
        )

    def _templates(self, family: str) -> Templates:
        """Return what the texts of a family have shown; from the store where this process does not know."""
        with self._lock:
            known = self._families.get(family)
            if known is not None:
                self._families.move_to_end(family)
                return known
        known = learn_all(reversed(self.store.texts(family, _TEXTS)))
        self._keep(family, known)
        return known

    def _learn(self, family: str, text: str) -> None:
        with self._lock:
            known = self._families.get(family)
        if known is not None:  # else it is read with all others when the family is asked for again
            self._keep(family, learn(known, text))

    def _keep(self, family: str, templates: Templates) -> None:
        with self._lock:
            self._families[family] = templates
            self._families.move_to_end(family)
            while len(self._families) > _FAMILIES:
                self._families.popitem(last=False)

    def _touch(self, entry: Entry, now: float) -> None:
        try:
            self.store.touch(entry.id, now)
        except SemanticStoreError as problem:  # the answer is there; only its use goes uncounted
            self._say(problem)

    def _say(self, problem: Exception) -> None:
        """Log a failure once for each kind; the text of a prompt never."""
        told = isinstance(problem, (SemanticStoreError, BadVectorError))
        known = f"{type(problem).__name__}: {problem}" if told else ""
        line = known or f"{type(problem).__name__} in the semantic cache"
        if line not in self._said and len(self._said) < _TEXTS:
            self._said.add(line)
            _log.warning("%s; the call went on without the cache", line)


def _belongs(entry: Entry, request: AskedRequest) -> bool:
    """Whether a row is for who asks; its keys say so too, and a store may be wrong about them."""
    return (entry.tenant, entry.user, entry.version) == (request.tenant, request.user, request.version)


def _needed(module: str) -> Any:
    """Import what needs the extra; a host binding that is used without a cache must load without it.

    Raises:
        ConfigError: The extra is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as problem:
        raise ConfigError(f'the semantic cache needs {problem.name}: pip install "headstay[semantic]"') from problem


def _failed(problem: Exception) -> Reason:
    if isinstance(problem, SemanticStoreError):
        return Reason.STORE_FAILED
    if isinstance(problem, BadVectorError):
        return Reason.BAD_VECTOR
    return Reason.EMBEDDER_FAILED if isinstance(problem, EmbedderError) else Reason.INTERNAL_ERROR
