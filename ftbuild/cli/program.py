"""Adjustments of Invoke's program: usage errors end with 2, and `invoke --list` shows groups.

Invoke has no setting for either (invoke 3.0 program.py: `run` exits with 1 after a ParseError, `_make_pairs`
sorts by name). The class is changed, since `invoke` is what people type and it is Invoke that loads tasks.py.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from invoke.collection import Collection
from invoke.exceptions import Exit, ParseError
from invoke.program import Program
from invoke.util import helpline

from ftbuild.cli import streams, words_of_commands
from ftbuild.cli.command import Command
from ftbuild.errors import ConfigError, FtbuildError
from ftbuild.host import failures
from ftbuild.text import terminal

_UNKNOWN = re.compile(r"No idea what '(?P<word>.*)' is!")
_ABSENT = re.compile(r"'(?P<command>.*)' did not receive required positional arguments: (?P<names>.*)")
_BARE = re.compile(r"Flag <Argument: (?P<name>[\w-]+).*> needed value and was not given one!")
_LIST_FORMATS = ("flat", "nested", "json")


class Namespace(Collection):
    """The commands of ftbuild, in the groups that `invoke --list` shows."""

    def __init__(self, groups: Mapping[str, Sequence[Command]]) -> None:
        """`groups`: heading -> commands, both in the order of the list."""
        super().__init__()
        self.groups = groups
        for member in (each for members in groups.values() for each in members):
            collection = member.path.rpartition(".")[0]
            if not collection:
                self.add_task(member)
                continue
            if collection not in self.collections:
                self.add_collection(Collection(collection))
            self.collections[collection].add_task(member)

    def listing(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Return heading -> (command as typed, first line of its help)."""
        return [
            (heading, [(member.typed, helpline(member) or "") for member in members])
            for heading, members in self.groups.items()
        ]


def adjust(namespace: Namespace) -> None:
    """Change Invoke's program, once for this process, to list the groups of `namespace`."""
    guard()
    _change("_ftbuild_adjusted", {"list_flat": _with_headings(Program.list_flat, namespace)})


def guard() -> None:
    """Change Invoke's program, once for this process, to fail as commands do, with help anywhere."""
    changes = {
        "create_config": _with_readable_settings(Program.create_config),
        "parse_core": _with_usage_errors(_with_numbers(Program.parse_core)),
        "parse_collection": _with_usage_errors(Program.parse_collection),
        "parse_tasks": _with_usage_errors(_with_numbers(Program.parse_tasks), _help, _require_options),
        "parse_cleanup": _with_usage_errors(Program.parse_cleanup, _require_format),
        "update_config": _with_readable_settings(Program.update_config),
    }
    _change("_ftbuild_guarded", changes)


def _change(mark: str, changes: Mapping[str, Callable[..., None]]) -> None:
    """Change methods of Invoke's program unless the mark says that it was done."""
    if not getattr(Program, mark, False):
        for name, change in {**changes, mark: True}.items():
            setattr(Program, name, change)


def _with_usage_errors(original: Callable[..., None], *before: Callable[[Any], None]) -> Callable[..., None]:
    @functools.wraps(original)
    def checked(program: Any, *arguments: Any) -> None:
        streams.prepare()
        try:
            with failures.reported():
                for act in before:
                    act(program)
                original(program, *arguments)
        except FtbuildError as failure:
            raise _ended(failure) from failure
        except ParseError as wrong:
            raise _ended(_explained(str(wrong), getattr(program, "collection", None))) from wrong
        except Exit as wrong:  # an unknown collection after --list
            if wrong.message and wrong.code == 1:
                raise _ended(ConfigError(wrong.message)) from wrong
            raise

    return checked


def _with_numbers(original: Callable[..., None]) -> Callable[..., None]:
    """Refuse a text as a number of an option of Invoke's own, such as -T."""

    @functools.wraps(original)
    def parsed(program: Any, *arguments: Any) -> None:
        try:
            original(program, *arguments)
        except ValueError as wrong:
            problem = f"an option of Invoke itself needs another value: {terminal.printable(str(wrong))}"
            raise ConfigError(problem, hint="invoke --help lists them") from wrong

    return parsed


def _help(program: Any) -> None:
    """Print the help that is asked for anywhere on the command line, and end."""
    words = program.argv[1:]
    if not words_of_commands.is_asked(words):
        return
    program.parser = program._make_parser()
    name = words_of_commands.subject(words, program.parser.contexts)
    if name is None:
        return  # Invoke's own help, or a complaint about what is no command
    program.print_task_help(name)
    raise Exit


def _with_readable_settings(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def updated(program: Any, *arguments: Any, **more: Any) -> None:
        try:
            original(program, *arguments, **more)
            # Else the first command does, outside of what is changed here.
            program.config.clone().load_shell_env()
        # Invoke calls parsers of YAML, JSON and Python, whose errors have nothing else in common.
        except Exception as broken:
            hint = "look at the options -f and -T of Invoke, and at its variables INVOKE_*"
            problem = f"Invoke's own settings cannot be read: {terminal.printable(str(broken))}"
            raise _ended(ConfigError(problem, hint=hint)) from broken

    return updated


def _ended(error: FtbuildError) -> Exit:
    return Exit(f"error: {error}", code=error.exit_code)


def _require_options(program: Any) -> None:
    """Raise ParseError for an option whose value is missing, and for one that its command does not have.

    Invoke misses the one where the option was given before (`--sm 80 --sm`), and takes the other for a value
    where the command requires one (`serve.sif --no-such-option` wrote a folder of that name).
    """
    contexts = program.collection.to_contexts(program.config.tasks.ignore_unknown_help)
    flags = {name: flag for context in contexts for name, flag in context.flags.items() if flag.takes_value}
    words = list(program.core.unparsed)
    for word, after in pairwise([*words, "--"]):
        if word in flags and after.startswith("--"):
            raise ParseError(f"{word} needs a value")
    named = {name: context for context in contexts for name in (context.name, *context.aliases)}
    for option in words_of_commands.strangers(words, named):
        if option not in program.initial_context.flags:
            raise ParseError(f"No idea what {option!r} is!")


def _require_format(program: Any) -> None:
    """Raise ConfigError for a format that Invoke's list does not have: it looks for a method of that name."""
    if (name := program.args["list-format"].value) not in _LIST_FORMATS:
        formats = ", ".join(_LIST_FORMATS)
        raise ConfigError(f"--list-format {terminal.quoted(name)} is unknown", hint=f"one of: {formats}")


def _explained(complaint: str, collection: Any) -> ConfigError:
    """Return the parser's complaint in plain words, with what may have been meant."""
    if unknown := _UNKNOWN.fullmatch(complaint):
        word = unknown["word"]
        kind = "option" if word.startswith("-") else "command or value"
        return ConfigError(f"unknown {kind} {word!r}", hint=_hint(word, collection))
    if absent := _ABSENT.fullmatch(complaint):
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in re.findall(r"'(\w+)'", absent["names"]))
        return ConfigError(f"{absent['command']} needs {flags}", hint=f"invoke --help {absent['command']}")
    if bare := _BARE.fullmatch(complaint):
        return ConfigError(f"--{bare['name']} needs a value")
    return ConfigError(complaint)


def _hint(word: str, collection: Any) -> str:
    if word.startswith("-"):
        return "invoke --help COMMAND lists its options; there are no short ones"
    names = list(collection.task_names) if collection else []
    moved = [name for name in names if name.rpartition(".")[2] == word]
    near = moved or difflib.get_close_matches(word, names, n=3)
    return f"did you mean {' or '.join(near)}?" if near else "invoke --list shows the commands"


def _with_headings(original: Callable[[Any], None], namespace: Namespace) -> Callable[[Any], None]:
    @functools.wraps(original)
    def grouped(program: Any) -> None:
        if program.list_root:  # one collection
            original(program)
            return
        groups = namespace.listing()
        width = max(len(name) for _, members in groups for name, _ in members)
        for heading, members in groups:
            print(f"{heading}:")
            program.print_columns(list(_padded(members, width)))

    return grouped


def _padded(members: Iterable[tuple[str, str]], width: int) -> Iterable[tuple[str, str]]:
    """Invoke aligns each group by itself; one width aligns them all."""
    return ((name.ljust(width), text) for name, text in members)
