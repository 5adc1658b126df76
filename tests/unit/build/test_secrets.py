"""No layer of a shipped image is made where a secret is: what a later layer removes would still be in it.

Verify looks at an image as a container sees it, not layer by layer.
"""

from __future__ import annotations

import re

import pytest

from testing import ROOT

SHIPPED = [
    ("triton-ft.Dockerfile", "runtime"),
    ("triton-ft.Dockerfile", "sdk"),
    ("triton-ft.Dockerfile", "unittests"),
    ("open-base.Dockerfile", "serving"),
]


def with_secrets(dockerfile: str, target: str) -> list[str]:
    """The stages that a target stands on, itself among them, whose steps get a secret."""
    sections = re.split(r"(?m)^(?=FROM )", dockerfile)[1:]
    stages = {}
    for section in sections:
        parent, name = re.match(r"FROM (\S+) AS (\S+)", section).groups()  # type: ignore[union-attr]
        stages[name] = (parent, section)
    found = []
    while target in stages:
        parent, section = stages[target]
        if "type=secret" in section:
            found.append(target)
        target = parent
    return found


@pytest.mark.parametrize(("file", "target"), SHIPPED)
def test_no_stage_of_a_shipped_image_gets_a_secret(file: str, target: str) -> None:
    text = (ROOT / "dockerfiles" / file).read_text()
    assert f" AS {target}\n" in text
    assert with_secrets(text, target) == []


def test_a_secret_below_a_shipped_stage_would_be_found() -> None:
    text = """
FROM base AS below
RUN --mount=type=bind,from=x \\
    --mount=type=secret,id=host make
FROM other AS builder
RUN --mount=type=secret,id=host make
FROM below AS runtime
COPY --from=builder / /
"""
    assert with_secrets(text, "runtime") == ["below"]
