"""Commands: typed options, cell selection, and one module per topic.

Invoke tells Python to keep no byte code (invoke 3.0 program.py:433), so each command would compile all
modules again, in a third of its time. Here the setting of Python itself counts.
"""

import sys

from ftbuild.cli import early

early.listen()
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)
