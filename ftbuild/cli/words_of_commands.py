"""Words of a command line that Invoke takes for values where one is due: `--help`, and options of no command.

They are no value of an option, nor of a parameter that a command requires (invoke 3.0 parser.py, `see_value`
and `missing_positional_args`). `--help` (or `-h`) anywhere asks for help, and nothing else is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from invoke.parser.context import ParserContext

HELP = ("--help", "-h")
Contexts = Mapping[str, ParserContext]


def is_asked(words: Sequence[str]) -> bool:
    """Return whether a command line asks for help."""
    return any(word in HELP for word in words)


def subject(words: Sequence[str], contexts: Contexts) -> str | None:
    """Return the command that help is asked for, by name -> its options; None if none is named.

    Of several commands it is the last one before the flag, else the first one after it. The value of an
    option is no command, even if it is called like one.
    """
    asked = next(at for at, word in enumerate(words) if word in HELP)
    before, after = (
        [word for word, context in _read(part, contexts) if context is None]
        for part in (words[:asked], words[asked + 1 :])
    )
    return next(iter([*before[::-1], *after]), None)


def strangers(words: Sequence[str], contexts: Contexts) -> Iterator[str]:
    """Yield the options, without their values, that the command before them does not have."""
    for word, context in _read(words, contexts):
        option = word.partition("=")[0]
        if context and word != "-" and not {option} & {*context.flags, *context.inverse_flags}:
            # Invoke's own way to write several short flags as one.
            yield option if option.startswith("--") else option[:2]


def _read(words: Sequence[str], contexts: Contexts) -> Iterator[tuple[str, ParserContext | None]]:
    """Yield the commands of a command line, and its options with the context that they are in."""
    context: ParserContext | None = None
    takes_value = False
    for word in words:
        if takes_value:
            takes_value = False
        elif word in contexts:
            context = contexts[word]
            yield word, None
        elif context and word.startswith("-"):
            takes_value = word in context.flags and context.flags[word].takes_value
            yield word, context
