"""The models that smoke serves, where no image is there to make them in."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound

from ftbuild.config.schema import Config
from ftbuild.errors import SmokeError
from ftbuild.gates.smoke import models
from ftbuild.gates.subject import Subject
from tests.unit.publishing.test_publish import plan_of


def absent(name: str) -> Any:
    raise ImageNotFound(name)


@pytest.mark.parametrize("carried", [False, True])
def test_models_that_ftbuild_would_make_otherwise_are_told_from_none(
    config: Config, tmp_path: Path, carried: bool
) -> None:
    """A folder that was carried to a machine with a GPU may be of an older ftbuild."""
    plan = plan_of(config)
    client: Any = SimpleNamespace(images=SimpleNamespace(get=absent))
    if carried:
        (tmp_path / models.MANIFEST).write_text(json.dumps({"sdk": "sha256:1", "inputs": "sha256:2"}))
    subject = Subject(client, plan, tmp_path, tmp_path, print)
    with pytest.raises(SmokeError) as refused:
        models.ensure(config, subject, tmp_path)
    assert str(refused.value).splitlines()[0] == (
        f"there is no image {plan.tag('sdk')} to make the models in"
        + (", and those that are there were made from other scripts or by another image" if carried else "")
    )
