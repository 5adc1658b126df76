"""Scripts in containers, by an engine that loses what they print; real ones are in tests/engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ftbuild.engine import container
from ftbuild.engine.container import ContainerError


class Forgetful:
    """An engine that drops the output of the first `lost` containers, or its end."""

    def __init__(self, lost: int, kept: bytes = b"") -> None:
        self.lost, self.kept, self.started = lost, kept, 0
        self.containers = SimpleNamespace(create=self.create)
        self.api = SimpleNamespace(remove_container=lambda name, **_: None)

    def info(self) -> dict[str, int]:
        return {"MemTotal": 2**34}

    def create(self, *_: Any, entrypoint: tuple[str, ...], **__: Any) -> SimpleNamespace:
        script = entrypoint[-1]

        def logs(**_: Any) -> bytes:
            whole = f"said\n{container._END}".encode() if script.endswith(f"'{container._END}'") else b""
            return self.kept if self.started <= self.lost else whole

        def start() -> None:
            self.started += 1

        return SimpleNamespace(start=start, wait=lambda **_: {"StatusCode": 0}, logs=logs)


@pytest.mark.parametrize("kept", [b"", b"sa"])
def test_a_script_runs_again_when_the_engine_has_lost_its_output(kept: bytes) -> None:
    engine: Any = Forgetful(container.TRIES - 1, kept)
    assert container.run(engine, "image", "echo said") == "said\n"
    assert engine.started == container.TRIES


def test_output_that_is_lost_every_time_is_an_error_and_no_empty_answer() -> None:
    engine: Any = Forgetful(container.TRIES)
    with pytest.raises(ContainerError, match="the engine lost the output"):
        container.run(engine, "image", "echo said")
