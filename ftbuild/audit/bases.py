"""Current digests of registry bases, compared with the pinned ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from ftbuild import registry
from ftbuild.config.schema import Config
from ftbuild.doctor import network
from ftbuild.errors import HostError
from ftbuild.text.results import CheckResult, State

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
        """The image by digest, which stands where the tag does (distribution-spec, `end-3`)."""
        return f"{self.image.rpartition(':')[0]}:{self.digest}"


def pins(config: Config) -> Iterator[Pinned]:
    """Yield every base of every release that comes from a registry."""
    for name, base in config.bases.bases.items():
        for release in base.releases if base.image else ():
            assert base.image is not None
            digest = config.lock.bases.get(name, {}).get(release, "")
            yield Pinned(f"{SUBJECT} {name} {release}", base.image.format(release=release), digest)


def ask(config: Config) -> Callable[[], Iterator[CheckResult]]:
    """Start asking all registries; the returned function waits, at most `PATIENCE_SECONDS` each."""
    running = network.start({base.what: partial(_look, base) for base in pins(config)})

    def collect() -> Iterator[CheckResult]:
        for what, looked in running.items():
            try:
                yield looked.result(PATIENCE_SECONDS)
            except TimeoutError:
                yield CheckResult(what, State.WARN, f"no answer within {PATIENCE_SECONDS:g} s")

    return collect


def _look(base: Pinned) -> CheckResult:
    try:
        now = registry.current(base.image)
        if now is None:
            return _without_tag(base)
    except HostError as silent:
        return CheckResult(
            base.what, State.WARN, f"{base.image} cannot be looked up: {silent.what}, {silent.where}"
        )
    if not base.digest:
        return CheckResult(
            base.what, State.WARN, f"the lock has no digest: {base.image} is {now} now; invoke lock"
        )
    if now != base.digest:
        moved = f"{base.image} is {now} now, the lock has {base.digest}"
        return CheckResult(base.what, State.WARN, f"{moved}; invoke lock pins the new one")
    return CheckResult(base.what, State.OK, f"{base.image} is {now}")


def _without_tag(base: Pinned) -> CheckResult:
    """Builds still work while the registry has the digest. Raises HostError when it does not answer."""
    if not base.digest:
        return CheckResult(base.what, State.FAIL, f"the registry has no {base.image}, and the lock no digest")
    if registry.current(base.by_digest) is None:
        return CheckResult(base.what, State.FAIL, f"the registry has neither {base.image} nor {base.digest}")
    return CheckResult(
        base.what, State.WARN, f"{base.image} is gone, {base.digest} still available: keep a copy of it"
    )
