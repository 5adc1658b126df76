"""Digests of registry bases now, against those that the lock pins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from ftbuild import registry
from ftbuild.audit.finding import Finding
from ftbuild.config.schema import Config
from ftbuild.doctor import network
from ftbuild.errors import HostError

SUBJECT = "base"
# Name resolution obeys no timeout of ours.
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Pinned:
    """A base of a release: the image whose tag is followed, and the locked digest, empty without one."""

    what: str
    image: str
    digest: str

    @property
    def by_digest(self) -> str:
        """A name that means the digest: it stands where the tag does (distribution-spec, `end-3`)."""
        return f"{self.image.rpartition(':')[0]}:{self.digest}"


def pins(config: Config) -> Iterator[Pinned]:
    """Every base of every release that comes from a registry."""
    for name, base in config.bases.bases.items():
        for release in base.releases if base.image else ():
            assert base.image is not None
            digest = config.lock.bases.get(name, {}).get(release, "")
            yield Pinned(f"{SUBJECT} {name} {release}", base.image.format(release=release), digest)


def ask(config: Config) -> Callable[[], Iterator[Finding]]:
    """Start asking all registries; calling the result waits, at most `PATIENCE_SECONDS` each, and tells."""
    running = network.start({base.what: partial(_look, base) for base in pins(config)})

    def collect() -> Iterator[Finding]:
        for what, looked in running.items():
            try:
                yield looked.result(PATIENCE_SECONDS)
            except TimeoutError:
                yield Finding(what, "warn", f"no answer within {PATIENCE_SECONDS:g} s")

    return collect


def _look(base: Pinned) -> Finding:
    try:
        now = registry.current(base.image)
        if now is None:
            return _without_tag(base)
    except HostError as silent:
        return Finding(base.what, "warn", f"{base.image} cannot be asked for: {silent.what}, {silent.where}")
    if not base.digest:
        return Finding(base.what, "warn", f"the lock has no digest: {base.image} is {now} now; invoke lock")
    if now != base.digest:
        moved = f"{base.image} is {now} now, the lock has {base.digest}"
        return Finding(base.what, "warn", f"{moved}; invoke lock takes the new one over")
    return Finding(base.what, "ok", f"{base.image} is {now}")


def _without_tag(base: Pinned) -> Finding:
    """Builds go on for as long as the registry has the digest. Raises HostError when it is silent."""
    if not base.digest:
        return Finding(base.what, "fail", f"the registry has no {base.image}, and the lock no digest")
    if registry.current(base.by_digest) is None:
        return Finding(base.what, "fail", f"the registry has neither {base.image} nor {base.digest}")
    return Finding(base.what, "warn", f"{base.image} is gone, {base.digest} still there: keep a copy of it")
