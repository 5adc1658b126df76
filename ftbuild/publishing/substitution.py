"""Substitution: published images of a plan's key, taken in place of a build.

The key is a hash of all inputs, so an image that somebody built of them is the one that a build would make,
if that somebody is to be believed: the signature says who it was. The immutable tag only finds it. What is
taken is named by the digest that was verified, and goes through the gate as a built one does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ftbuild.errors import FtbuildError, HostError, PublishError
from ftbuild.host import threads
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.publishing import gates, names, staging, trust, verifying
from ftbuild.publishing.names import Names
from ftbuild.publishing.remote_image import RemoteImage
from ftbuild.publishing.session import Options, PublishSession
from ftbuild.publishing.substituted import Substituted
from ftbuild.publishing.verifying import Verifier
from ftbuild.text.reporter import Reporter


@dataclass(frozen=True)
class Substitutes:
    """Where published images are looked for, and whose signatures count."""

    names: Names
    trusted: Sequence[Verifier]
    work: Path

    def session(self) -> PublishSession:
        """Return a session with the registry."""
        return PublishSession(Options(self.names, self.work))


@dataclass(frozen=True)
class Found:
    """A signed image of a plan in a registry, and who has signed it."""

    image: RemoteImage
    signer: Verifier

    @property
    def digest(self) -> str:
        """The digest of the index, which is what was signed."""
        return self.image.tagged.descriptor.digest

    @property
    def bytes(self) -> int:
        """The bytes of its layers, as they are in the registry."""
        return sum(layer.size for layer in self.image.image.content.layers or ())


def find(
    session: PublishSession, plan: Plan, trusted: Sequence[Verifier], report: Reporter
) -> dict[str, Found]:
    """Return the images of a plan by product; none, and a report of the reason, if one is not to be had.

    It is not where the registry has no such image or does not answer, nobody who is trusted has signed it, or
    it is of another form than that of a published image of this very cell and key.
    """
    try:
        found = threads.results(
            [partial(_found, session, plan, product, trusted, report) for product in PRODUCTS]
        )
        return dict(zip(PRODUCTS, found, strict=True))
    except _Absent as absent:
        report(f"{absent.what}: building it")
    except (PublishError, HostError) as refused:
        report(f"{session.repository.name} is not used, so this cell is built: {refused.what}")
    return {}


class _Absent(FtbuildError):
    """The registry has no image of this key."""


def _found(
    session: PublishSession, plan: Plan, product: str, trusted: Sequence[Verifier], report: Reporter
) -> Found:
    repository, tag = session.repository, names.tag(plan, product)
    head = repository.head(tag)
    if head is None:
        untested = f"{tag}{names.UNSMOKED}"
        only = f", only {untested}, which no GPU has tested" if repository.head(untested) else ""
        raise _Absent(f"{repository.name} has no {tag}{only}")
    signed = f"{repository.name}@{head.digest}"
    signer = verifying.signer_of(signed, trusted, report)
    if signer is None:
        raise PublishError(
            f"its image {tag} is signed by nobody who is trusted here ({', '.join(map(str, trusted))})",
            where=signed,
        )
    return Found(trust.require_form(repository, head.digest, plan, product, gates.ALL), signer)


def take(
    session: PublishSession, plan: Plan, found: Mapping[str, Found], report: Reporter
) -> dict[str, Substituted]:
    """Pull signed images by digest under the names that a build gives them; return what was taken.

    Raises PublishError if the registry or the engine refuses, or the engine has another image afterwards.
    """
    digests = {product: each.digest for product, each in found.items()}
    staging.fetch(session, digests, {product: [plan.tag(product)] for product in found}, report=report)
    taken = {}
    for product, each in found.items():
        name = plan.tag(product)
        image = session.local(name)
        if image not in each.image.ids:
            raise PublishError(
                f"the engine has another image than the one that it pulled as {name}", where=image
            )
        where = f"{session.repository.name}@{each.digest}"
        taken[product] = Substituted(where, each.digest, image, str(each.signer))
    return taken


def drop(session: PublishSession, plan: Plan) -> None:
    """Take the names of a build away from what was taken."""
    from docker.errors import DockerException

    for product in PRODUCTS:
        with suppress(DockerException):
            session.client.images.remove(plan.tag(product))
