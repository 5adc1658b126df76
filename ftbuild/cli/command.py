"""Typed functions as Invoke tasks: options, messages on standard error, exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from invoke.tasks import Task

from ftbuild.cli import hints, streams
from ftbuild.cli.arguments import Option, Signature, signature
from ftbuild.errors import ConfigError, FtbuildError, Interrupted
from ftbuild.host import failures, signals
from ftbuild.text import terminal

Body = Callable[..., int | None]


@dataclass(frozen=True)
class Idle:
    """When options of a command do nothing: without any of the others they need, or beside another one.

    All by their names in Python.
    """

    needs: Mapping[str, Sequence[str]]
    beside: Mapping[str, Sequence[str]]

    def refuse(self, signature: Signature, values: Mapping[str, Any]) -> None:
        """Raise ConfigError for an option that was given and does nothing."""
        options = {option.name: option for option in signature.options}
        given = {name for name, option in options.items() if option.is_given(values)}
        for name in given & self.needs.keys():
            wanted = [options[other] for other in self.needs[name]]
            if not any(values.get(other.name, other.default) for other in wanted):
                flags = " or ".join(other.flag for other in wanted)
                raise _idle(options[name], f"without {flags}")
        for name in given & self.beside.keys():
            for other in self.beside[name]:
                if other in given:
                    raise _idle(options[name], f"beside {options[other].flag}")


def _idle(option: Option, when: str) -> ConfigError:
    return ConfigError(f"{option.flag} does nothing {when}", hint=f"leave {option.flag} out")


class Command(Task):  # type: ignore[type-arg]  # generic in Invoke's stubs only
    """A task whose options are the parameters of a typed function; see `arguments.signature`."""

    def __init__(self, function: Body, path: str, default: bool, idle: Idle) -> None:
        """`path` is the full name, for instance `serve.compose`; `default`: its collection's name runs it."""
        self.function = function
        self.idle = idle
        self.signature = signature(function)
        self.path = path
        super().__init__(
            _taking_context(function), name=path.rpartition(".")[2], positional=(), default=default
        )
        if self._configuration:
            hints.takes_configuration(self.path, self.typed)

    @property
    def typed(self) -> str:
        """The name as a person types it."""
        return self.path.rpartition(".")[0] if self.is_default else self.path

    @property
    def _configuration(self) -> Option | None:
        return next((option for option in self.signature.options if option.name == "config"), None)

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Any]:
        """Return the arguments for Invoke's parser, required ones first."""
        ordered = sorted(self.signature.options, key=lambda option: not option.required)
        return [option.argument() for option in ordered]

    def __call__(self, *args: Any, **values: Any) -> None:
        """Run the function; end with its exit code unless it is 0."""
        self.times_called += 1
        if code := _guarded(lambda: self._run(values)):
            raise SystemExit(code)

    def _run(self, values: Mapping[str, Any]) -> int | None:
        self.idle.refuse(self.signature, values)
        option = self._configuration
        folder = values[option.name] if option and option.is_given(values) else None
        with hints.about(folder):
            try:
                return self.function(**self.signature.arguments(values))
            except FtbuildError as failure:
                failure.hint = failure.hint and hints.as_shown(failure.hint)
                raise


def command(
    path: str = "",
    *,
    default: bool = False,
    needs: Mapping[str, Sequence[str]] | None = None,
    beside: Mapping[str, Sequence[str]] | None = None,
) -> Callable[[Body], Command]:
    """Make a typed function a command, by default of the function's name with dashes.

    An option that does nothing is refused: one in `needs` without any of the others named there, one in
    `beside` together with one of those.
    """
    idle = Idle(needs or {}, beside or {})
    return lambda function: Command(function, path or function.__name__.replace("_", "-"), default, idle)


def _taking_context(function: Body) -> Callable[..., int | None]:
    """Wrap the function for Invoke, which hands a Context to every task; ours need none."""

    def body(context: Any, **values: Any) -> int | None:
        return function(**values)

    body.__doc__ = function.__doc__
    body.__name__ = function.__name__
    body.__module__ = function.__module__
    return body


def _guarded(body: Callable[[], int | None]) -> int:
    """Return the exit code; a failure becomes a message on standard error."""
    streams.prepare()
    try:
        with signals.ending(), failures.reported():
            return body() or 0
    except FtbuildError as failure:
        print(f"error: {terminal.readable(str(failure))}", file=sys.stderr)
        return failure.exit_code
    except KeyboardInterrupt:
        print("interrupted: the same command resumes", file=sys.stderr)
        return Interrupted.exit_code
