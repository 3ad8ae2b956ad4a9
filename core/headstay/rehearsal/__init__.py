"""Runs a user's agent twice against the emulator, to see what differs between two processes on two days.

```
run.rehearse --> surroundings     what the two processes find: URLs, no keys, hash seeds, telemetry off
             --> child            the code in each of them: moves the clock, then
                 target           imports the module and calls what was named
                 drive --> inputs asks what came back three questions, then one in a second conversation
```
"""

from headstay.errors import RehearsalError
from headstay.rehearsal.run import limits, rehearse

__all__ = ["RehearsalError", "limits", "rehearse"]
