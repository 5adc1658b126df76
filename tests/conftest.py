"""What every test runs under: Ctrl-C as a terminal gives it."""

from __future__ import annotations

import signal

# A shell starts what runs in the background with SIGINT ignored. Children inherit that, and Python then never
# raises KeyboardInterrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
