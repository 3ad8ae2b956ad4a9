"""Every exception headstay raises on purpose.

```
HeadstayError
├── ConfigError      a setting cannot work: unknown TTL, template that is no template, slot that is no pattern
├── WireError        a request body is not of the wire format it was said to be
├── HeadStoreError   the head store cannot be opened, read or written
├── LedgerError      the ledger cannot be opened, read or written
├── SemanticStoreError  a semantic cache's store cannot be opened, read or written
├── RehearsalError   an agent could not be run under the emulator
├── LocalError       the local model cannot be installed, started, reached or warmed
├── EmbedderError    an embedder failed, or what it returned is no set of vectors
└── PrefixBreak      only with on_break="raise": the head or the history changed
```

Inside a user's call only `PrefixBreak` is ever raised; everything else is recorded and the request goes out as the
application made it. The others come from constructors and from the command line.
"""


class HeadstayError(Exception):
    """Base of all exceptions of headstay. The message says what, where, and what to do."""


class ConfigError(HeadstayError, ValueError):
    """A setting cannot work."""


class WireError(HeadstayError, ValueError):
    """A request body is not of the wire format it was said to be."""


class HeadStoreError(HeadstayError):
    """The head store cannot be opened, read or written."""


class LedgerError(HeadstayError):
    """The ledger cannot be opened, read or written."""


class SemanticStoreError(HeadstayError):
    """A semantic cache's store cannot be opened, read or written."""


class RehearsalError(HeadstayError):
    """An agent could not be run under the emulator."""


class LocalError(HeadstayError):
    """The local model cannot be installed, started, reached or warmed."""


class EmbedderError(HeadstayError):
    """An embedder failed, or what it returned is no set of vectors."""


class PrefixBreak(HeadstayError):  # noqa: N818 - the field's word for the event, as in StopIteration
    """The prefix of a conversation changed and `on_break="raise"` was set."""
