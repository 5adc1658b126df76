"""Tags that are set in a registry: by a request, and from another repository by Docker's own tool."""

from __future__ import annotations

import json
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ftbuild.errors import PublishError
from ftbuild.publishing import tagging
from ftbuild.registry.client import Repository
from tests.unit.build.test_bake import docker_that
from tests.unit.publishing.shelf import INDEX, Shelf

TAG, LAYERS = "22.12-sm86", [b"layer"]


@pytest.fixture
def staging(shelf: Shelf) -> Repository:
    return Repository(f"{shelf.repository.name}/stage")


def test_what_another_repository_has_is_copied_by_the_tool_that_copies_layers_within_a_registry(
    shelf: Shelf, staging: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker_that(tmp_path, monkeypatch, f'for word; do echo "$word"; done >> {tmp_path}/told')
    digest = shelf.image_of(LAYERS, TAG).manifest.digest  # as the tool leaves it
    tagging.set_tag(staging, digest, shelf.repository, TAG, shelf.said.append)
    assert (tmp_path / "told").read_text().splitlines() == [
        *("buildx", "imagetools", "create", "--progress", "plain"),
        *("--tag", f"{shelf.repository.name}:{TAG}", f"{shelf.repository.name}/stage@{digest}"),
    ]
    assert shelf.said == []


def test_a_copy_that_the_registry_refuses_is_told_with_the_last_words_of_the_tool(
    shelf: Shelf, staging: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker_that(tmp_path, monkeypatch, "echo '#1 copying' >&2; echo 'ERROR: denied: not yours' >&2; exit 1")
    with pytest.raises(PublishError) as refused:
        tagging.set_tag(staging, f"sha256:{'0' * 64}", shelf.repository, TAG, shelf.said.append)
    assert str(refused.value).splitlines() == [
        "the tag could not be set: ERROR: denied: not yours",
        f"  where: {shelf.repository.name}:{TAG}",
        "  next:  docker login with an account that may push",
    ]


def test_within_a_repository_a_tag_needs_no_tool(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker_that(tmp_path, monkeypatch, "exit 1")
    digest = shelf.image_of(LAYERS, "staged").manifest.digest
    tagging.set_tag(shelf.repository, digest, shelf.repository, TAG, shelf.said.append)
    head = shelf.repository.head(TAG)
    assert head
    assert head.digest == digest


def test_an_image_that_has_vanished_gets_no_tag(shelf: Shelf) -> None:
    gone = f"sha256:{'0' * 64}"
    with pytest.raises(PublishError, match="an image vanished from the registry") as refused:
        tagging.set_tag(shelf.repository, gone, shelf.repository, TAG, shelf.said.append)
    assert refused.value.where == f"{shelf.repository.name}@{gone}"


@pytest.mark.parametrize(
    ("present", "order"),
    [
        (timedelta(hours=-2), "kept"),
        (timedelta(hours=2), "kept"),
        (timedelta(hours=23), "kept"),
        (timedelta(hours=25), "moved"),
        (timedelta(days=400), "moved"),
        (None, "moved"),
    ],
)
def test_a_moving_tag_goes_to_no_older_build_unless_its_time_is_still_to_come(
    shelf: Shelf, present: timedelta | None, order: str
) -> None:
    """Clocks differ by hours; whoever may push could keep a tag from moving by a time of next year."""
    now = datetime.now(UTC)
    time = {"org.opencontainers.image.created": (now + present).isoformat()} if present is not None else {}
    raw = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [], "annotations": time})
    shelf.repository.put_manifest(TAG, raw.encode(), INDEX)
    with pytest.raises(PublishError, match="would go back") if order == "kept" else nullcontext():
        tagging.require_later(shelf.repository, (now - timedelta(hours=3)).isoformat(), TAG)
    if present is not None:
        tagging.require_later(shelf.repository, (now + present).isoformat(), TAG)
