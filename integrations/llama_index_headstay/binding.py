"""What an instrumented LLM knows beyond its class, and how a request of its is prepared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from headstay.call import Call
from headstay.errors import ConfigError
from headstay.flow import Flow
from headstay.prompt import Wire
from headstay.providers.vllm import Engine
from headstay.semantic.cache import Cache
from llama_index_headstay.identity import Named, name_of


@dataclass(frozen=True, slots=True)
class Binding:
    """What an instrumented LLM knows.

    Attributes:
        flow: Prepares and completes its calls.
        tenant: The tenant, or how to find it.
        tail: Per-call text, or how to find it.
        conversation: The conversation, or how to find it.
        engine: The vLLM server it calls, if it calls one.
        semantic: The semantic cache that answers its calls, or None.
        tail_affects_answer: Whether another tail can make another answer.
        plain: Endpoints that refused to be asked for the usage of a stream; they are not asked again.
    """

    flow: Flow
    tenant: Named = None
    tail: Named = None
    conversation: Named = None
    engine: Engine | None = None
    semantic: Cache | None = None
    tail_affects_answer: bool = True
    plain: set[str] = field(default_factory=set[str], compare=False)

    def names(self) -> "Names":
        """Ask the application, in the context of the call, who it is for and what its tail is."""
        try:
            return Names(
                name_of("tenant", self.tenant),
                name_of("tail", self.tail) or "",
                name_of("conversation", self.conversation) or "",
            )
        except ConfigError as problem:
            return Names(problem=problem)

    def prepare(
        self,
        body: Mapping[str, Any],
        wire: Wire,
        *,
        names: "Names",
        tail: str = "",
        replies: Sequence[object] = (),
        endpoint: str = "",
        diagnoses: bool = False,
    ) -> Call:
        """Arrange one request.

        Args:
            body: As the host built it, without what headstay put on its messages.
            wire: Its wire format.
            names: Who it is for, and the application's own tail.
            tail: Per-call text that the messages bore.
            replies: For each reply in its history, what was kept on it.
            endpoint: The base URL it goes to.
            diagnoses: Whether whoever takes it may know the provider's request for a diagnosis.

        Raises:
            PrefixBreak: Only with `on_break="raise"`.
        """
        if names.problem is not None:
            return self._unasked(body, wire, names.problem)
        return self.flow.prepare(
            body,
            wire=wire,
            endpoint=endpoint,
            tenant=names.tenant,
            thread=names.conversation,
            tail="\n\n".join(text for text in (names.tail, tail) if text),
            replies=replies,
            diagnoses=diagnoses,
            engine=self.engine,
        )

    def pass_on(self, body: Mapping[str, Any], wire: Wire, reason: str, *, names: "Names") -> Call:
        """Let a request go out as the application made it, and keep the reason."""
        if names.problem is not None:
            return self._unasked(body, wire, names.problem)
        return self.flow.passed(body, wire, reason, tenant=names.tenant, engine=self.engine)

    def _unasked(self, body: Mapping[str, Any], wire: Wire, problem: ConfigError) -> Call:
        return self.flow.unasked(body, wire, problem, partial(name_of, "tenant", self.tenant), engine=self.engine)


@dataclass(frozen=True, slots=True)
class Names:
    """What the application said of one call.

    Attributes:
        tenant: Whose call it is, or None.
        tail: Its per-call text, or empty.
        conversation: Which conversation it belongs to, or empty.
        problem: Why that is not known, or None.
    """

    tenant: str | None = None
    tail: str = ""
    conversation: str = ""
    problem: ConfigError | None = None
