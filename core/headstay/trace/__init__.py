"""Logs of model calls to the requests in them, whatever wrote the log.

```
read.read_log --> lines                 a file to JSON records and lines of text, in bounded memory
              --> otel, langsmith,      a record to its requests, by what wrote it
                  litellm, raw
              --> sdk_debug             a line of text to the request that an SDK was about to send
                  answer, streamed      what a response says: usage, texts, ids
                  fields                where logs put times and ids
                  entry                 what comes out
order                                   requests in the order in which they were sent
```
"""

from headstay.trace.entry import Entry, Skipped
from headstay.trace.read import read_log

__all__ = ["Entry", "Skipped", "read_log"]
