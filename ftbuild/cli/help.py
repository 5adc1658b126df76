"""`--help` (or `-h`) anywhere on a command line: it asks for help, and nothing else is done.

Invoke takes it for the value of an option, or of a parameter that a command requires, where one is due
(invoke 3.0 parser.py, `see_value` and `missing_positional_args`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from invoke.parser.context import ParserContext

FLAGS = ("--help", "-h")


def is_asked(words: Sequence[str]) -> bool:
    """Return whether a command line asks for help."""
    return any(word in FLAGS for word in words)


def subject(words: Sequence[str], contexts: Mapping[str, ParserContext]) -> str | None:
    """Return the command that help is asked for, by name -> its options; None if none is named.

    Of several commands it is the last one before the flag, else the first one after it. The value of an
    option is no command, even if it is called like one.
    """
    asked = next(at for at, word in enumerate(words) if word in FLAGS)
    before, after = list(_commands(words[:asked], contexts)), list(_commands(words[asked + 1 :], contexts))
    return next(iter([*before[::-1], *after]), None)


def _commands(words: Sequence[str], contexts: Mapping[str, ParserContext]) -> list[str]:
    found: list[str] = []
    takes_value = False
    for word in words:
        if takes_value:
            takes_value = False
        elif word in contexts:
            found.append(word)
        elif found and word in (flags := contexts[found[-1]].flags):
            takes_value = flags[word].takes_value
    return found
