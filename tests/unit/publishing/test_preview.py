"""The dry run of `invoke publish` refuses what the real run refuses, in its words, and only reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ftbuild.build import definitions
from ftbuild.gates.report import VERIFY
from ftbuild.plan import DIRTY, PRODUCTS, Plan, Revision
from ftbuild.publishing import names
from ftbuild.publishing.signing import KeySigner
from tests.unit.publishing import test_trust
from tests.unit.publishing.shelf import Shelf
from tests.unit.publishing.test_trust import Unsmoked, forget_moving

# Fixtures.
cell = test_trust.cell
keys, our_signer, signer = test_trust.keys, test_trust.our_signer, test_trust.signer
unsmoked = test_trust.unsmoked

Situation = Callable[[Shelf, Plan], object]


def publish_newer(shelf: Shelf, cell: Plan) -> None:
    newer = replace(cell, key="f" * 12, revision=Revision("b" * 40, "2026-03-01T00:00:00+00:00"))
    shelf.tested(newer)
    assert shelf.publish(newer)[0].state == "published"


def newer_is_published(shelf: Shelf, cell: Plan) -> None:
    publish_newer(shelf, cell)
    shelf.tested(cell)


def newer_was_published_later(shelf: Shelf, cell: Plan) -> None:
    """The pair has its immutable tags, and the moving ones are those of a newer commit."""
    whole(shelf, cell)
    publish_newer(shelf, cell)


def one_more(shelf: Shelf, cell: Plan) -> None:
    """Publish a pair, then forget the records: the moving tags of an unproven pair are missing."""
    shelf.tested(cell)
    assert shelf.publish(cell)[0].state == "published"
    forget_moving(shelf, cell)
    for record in cell.folder(shelf.work).glob("*.json"):
        record.unlink()


def half(shelf: Shelf, cell: Plan) -> None:
    shelf.tested(cell)
    assert shelf.publish(cell)[0].state == "published"
    forget_moving(shelf, cell)


def whole(shelf: Shelf, cell: Plan) -> None:
    shelf.tested(cell)
    assert shelf.publish(cell)[0].state == "published"


def verified(shelf: Shelf, cell: Plan) -> None:
    shelf.judge(cell, shelf.stage(cell), [VERIFY])


def another_image_is_tested(shelf: Shelf, cell: Plan) -> None:
    shelf.tested(cell)
    shelf.stage(cell)


def compiled_with_a_shared_cache(shelf: Shelf, cell: Plan) -> None:
    shelf.tested(cell, **{definitions.CACHE_LABEL: "remote"})


def built_from_uncommitted_files(shelf: Shelf, cell: Plan) -> None:
    shelf.tested(cell, **{"org.opencontainers.image.revision": "a" * 40 + DIRTY})


def tested(shelf: Shelf, cell: Plan) -> None:
    shelf.tested(cell)


def nothing(shelf: Shelf, cell: Plan) -> None:
    """Neither built here nor staged."""


SITUATIONS: list[tuple[Situation, dict[str, Any], str]] = [
    (nothing, {}, "refused"),
    (nothing, {"allow_unsmoked": True}, "refused"),
    (verified, {}, "refused"),
    (another_image_is_tested, {}, "refused"),
    (compiled_with_a_shared_cache, {}, "refused"),
    (compiled_with_a_shared_cache, {"allow_shared_cache": True}, "push, attest, set all tags"),
    (built_from_uncommitted_files, {}, "refused"),
    (built_from_uncommitted_files, {"allow_dirty": True}, "push, attest, set all tags"),
    (newer_is_published, {}, "refused"),
    (newer_is_published, {"force": True}, "push, attest, set all tags"),
    (newer_was_published_later, {}, "refused"),
    (newer_was_published_later, {"force": True}, "set the moving tags"),
    (one_more, {}, "refused"),
    (half, {}, "set the moving tags"),
    (whole, {}, "nothing: published"),
    (tested, {}, "push, attest, set all tags"),
]


@pytest.mark.parametrize(("situation", "allowed", "action"), SITUATIONS)
def test_a_dry_run_says_what_the_real_run_does_and_writes_nothing(
    shelf: Shelf,
    cell: Plan,
    situation: Situation,
    allowed: dict[str, Any],
    action: str,
) -> None:
    situation(shelf, cell)
    tags, files = set(shelf.repository.tags()), content(shelf.work)
    (foreseen,) = shelf.foresee(cell, signer=None, **allowed)
    assert (set(shelf.repository.tags()), content(shelf.work)) == (tags, files)
    (ended,) = shelf.publish(cell, signer=None, **allowed)
    assert foreseen.action == action
    assert foreseen.exit_code == ended.exit_code
    assert (foreseen.error and foreseen.error.what) == (ended.error and ended.error.what)


def test_a_dry_run_says_what_is_signed_by_a_run_with_a_key(
    shelf: Shelf, cell: Plan, signer: KeySigner
) -> None:
    whole(shelf, cell)
    (foreseen,) = shelf.foresee(cell, signer=signer)
    assert foreseen.action == "sign"
    assert test_trust.signatures(shelf) == []
    (ended,) = shelf.publish(cell, signer=signer)
    assert ended.exit_code == foreseen.exit_code == 0
    assert len(test_trust.signatures(shelf)) >= 2
    (foreseen,) = shelf.foresee(cell, signer=signer)
    assert foreseen.action == "nothing: published"


def test_a_dry_run_refuses_what_has_no_pinned_base(shelf: Shelf, cell: Plan) -> None:
    cell = replace(cell, base=replace(cell.base, digest=None, debian=None))
    shelf.tested(cell)
    (foreseen,), (ended,) = shelf.foresee(cell), shelf.publish(cell)
    assert foreseen.error
    assert ended.error
    assert foreseen.error.what == ended.error.what
    assert "no digest of its base" in foreseen.error.what


def test_a_dry_run_says_what_becomes_of_images_that_no_gpu_has_tested(
    shelf: Shelf, cell: Plan, signer: KeySigner, unsmoked: Unsmoked
) -> None:
    untested = "push, attest, set the tags of untested images"
    for key, action, state in (
        (None, untested, "unsmoked"),
        (None, "nothing: published as untested", "present"),
        (signer, "sign", "signed"),
        (signer, "nothing: published as untested", "present"),
    ):
        (foreseen,) = shelf.foresee(cell, signer=key, allow_unsmoked=True)
        (ended,) = shelf.publish(cell, signer=key, allow_unsmoked=True)
        assert (foreseen.action, foreseen.error) == (action, None)
        assert (ended.state, ended.error) == (state, None)


def test_a_dry_run_refuses_untested_images_of_somebody_else(
    shelf: Shelf, cell: Plan, unsmoked: Unsmoked
) -> None:
    for product in PRODUCTS:
        shelf.image(cell, product, names.tag(cell, product) + names.UNSMOKED)
    (foreseen,) = shelf.foresee(cell, allow_unsmoked=True)
    (ended,) = shelf.publish(cell, allow_unsmoked=True)
    assert foreseen.error
    assert ended.error
    assert foreseen.error.what == ended.error.what


def test_a_half_published_pair_that_is_not_ours_is_refused_by_a_dry_run(shelf: Shelf, cell: Plan) -> None:
    shelf.image(cell, "runtime", names.tag(cell, "runtime"))
    shelf.tested(cell)
    (foreseen,), (ended,) = shelf.foresee(cell), shelf.publish(cell)
    assert foreseen.error
    assert ended.error
    assert foreseen.error.what == ended.error.what


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
