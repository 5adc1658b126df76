"""Commands that messages tell to run next, with the configuration folder of the command that failed.

Whoever finds a mistake does not know the command line: `invoke lock`, typed as it stands, would lock another
configuration.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

# Commands with the option --config, as they are typed.
_configured: set[str] = set()
_COMMAND = re.compile(r"\binvoke ([a-z][a-z0-9.-]*[a-z0-9])")


def takes_configuration(*names: str) -> None:
    """Note a command that has the option --config, with all of its names."""
    _configured.update(names)


def of(hint: str, folder: Path) -> str:
    """Return a hint whose commands read the configuration of `folder`, unless the hint is about --config."""
    if "--config" in hint:
        return hint
    option = f" --config {shlex.quote(str(folder))}"
    return _COMMAND.sub(lambda match: match[0] + (option if match[1] in _configured else ""), hint)
