"""Checks of the added files: what the image adds to a base from a registry, else all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ftbuild.gates.verify import filesystem
from ftbuild.gates.verify.images import Images
from ftbuild.gates.verify.verdict import REPORT_BUG, Verdict, judge

NOTHING = filesystem.Contents({}, {}, {})
_PASSWORD = re.compile(r"://[^/@\s:]+:[^/@\s]+@")


def leftovers(images: Images, product: str) -> Iterator[Verdict]:
    """Require no build files, no build tool and no credential among the added files."""
    image, base = _with_base(images, product)
    brought = filesystem.brought_by_base(base)
    passwords = [
        f"password in a URL: {place}"
        for place, text in _configured(images, images.ids[product])
        if _PASSWORD.search(text)
    ]
    yield judge(
        [*filesystem.leftovers(image, base), *passwords],
        f"nothing added (of the base itself: {', '.join(brought)})" if brought else "nothing",
        "a stage of dockerfiles/triton-ft.Dockerfile leaves it; a credential that got into a layer must be "
        "revoked as well",
    )


def owners(images: Images, product: str) -> Iterator[Verdict]:
    """Require an owner and a group with a name for every added file."""
    problems = filesystem.unknown_owners(*_with_base(images, product))
    yield judge(problems, "all have a name", f"COPY with --chown, or make the user; {REPORT_BUG}")


def rights(images: Images, product: str) -> Iterator[Verdict]:
    """Require no setuid, setgid or capabilities of an added program, and no world-writable file."""
    both = _with_base(images, product)
    known = filesystem.DEBIAN_SETUID if images.plan.base.local else {}
    problems = [
        *(f"setuid or setgid: {path}" for path in filesystem.setuid(*both, known=known)),
        *(f"with capabilities: {path}" for path in filesystem.capable(*both)),
        *(f"world-writable: {path}" for path in filesystem.world_writable(*both)),
    ]
    yield judge(problems, "nothing added", f"chmod it in its stage; {REPORT_BUG}")


def _with_base(images: Images, product: str) -> tuple[filesystem.Contents, filesystem.Contents]:
    """Return the contents of the image, and those of its base that excuse them: none of a base of our own."""
    excused = NOTHING if images.plan.base.local else images.contents(images.base)
    return images.contents(images.ids[product]), excused


def _configured(images: Images, image: str) -> Iterator[tuple[str, str]]:
    """Yield every text in an image's configuration: environment, labels, steps of its build."""
    configured = images.attributes(image)["Config"]
    yield from (("environment", text) for text in configured.get("Env") or ())
    yield from (("labels", text) for text in (configured.get("Labels") or {}).values())
    yield from (("history", step["CreatedBy"]) for step in images.client.images.get(image).history())
