"""Runs a user's agent twice against the emulator, to see what differs between two processes on two days.

```
run.rehearse --> surroundings     what the two processes find: URLs, no keys, hash seeds, telemetry off
             --> process          starts them, one after the other, and waits
                 --> child        the code in each of them: moves the clock, then
                     loopback     keeps it from other machines
                     target       imports the module and calls what was named
                     drive --> inputs asks what came back three questions, then one in a second conversation
             --> problems         what is said when that went wrong
                 --> models       where a model is asked for that the emulator does not have
```
"""

from headstay.errors import RehearsalError
from headstay.rehearsal.run import Rehearsal, rehearse

__all__ = ["Rehearsal", "RehearsalError", "rehearse"]
