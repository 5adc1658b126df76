"""Typed functions as Invoke tasks: options, messages on standard error, exit codes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from invoke.tasks import Task

from ftbuild.cli import streams
from ftbuild.cli.arguments import signature
from ftbuild.errors import FtbuildError, Interrupted
from ftbuild.host import failures, signals

Body = Callable[..., int | None]


class Command(Task):  # type: ignore[type-arg]  # generic in Invoke's stubs only
    """A task whose options are the parameters of a typed function; see `arguments.signature`."""

    def __init__(self, function: Body, path: str, default: bool) -> None:
        """`path` is the full name, for instance `serve.compose`; `default`: its collection's name runs it."""
        self.function = function
        self.signature = signature(function)
        self.path = path
        super().__init__(
            _taking_context(function), name=path.rpartition(".")[2], positional=(), default=default
        )

    @property
    def typed(self) -> str:
        """The name as a person types it."""
        return self.path.rpartition(".")[0] if self.is_default else self.path

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Any]:
        """Return the arguments for Invoke's parser, required ones first."""
        ordered = sorted(self.signature.options, key=lambda option: not option.required)
        return [option.argument() for option in ordered]

    def __call__(self, *args: Any, **values: Any) -> None:
        """Run the function; end with its exit code unless it is 0."""
        self.times_called += 1
        if code := _guarded(lambda: self.function(**self.signature.arguments(values))):
            raise SystemExit(code)


def command(path: str = "", *, default: bool = False) -> Callable[[Body], Command]:
    """Make a typed function a command, by default of the function's name with dashes."""
    return lambda function: Command(function, path or function.__name__.replace("_", "-"), default)


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
        print(f"error: {failure}", file=sys.stderr)
        return failure.exit_code
    except KeyboardInterrupt:
        print("interrupted: the same command resumes", file=sys.stderr)
        return Interrupted.exit_code
