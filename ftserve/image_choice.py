"""Choice of the local runtime image that fits this host's GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import Version

from ftbuild import features
from ftbuild.config.schema import Config
from ftbuild.engine import container, daemon, gpu
from ftbuild.engine.gpu import Access, Gpu
from ftbuild.errors import ConfigError, HostError
from ftbuild.features import NOTHING, LeftOut
from ftbuild.plan import LABELS
from ftbuild.sm import Sm, parse_sms, sm_codes
from ftbuild.text.reporter import Reporter, to_stderr

if TYPE_CHECKING:
    import docker

# Of our own images (dockerfiles/triton-ft.Dockerfile); another one's user is read from the image.
USER = (1000, 1000)
_BUILD = "invoke build --sm <SM of the GPU>, or name an image: --image"


@dataclass(frozen=True)
class Image:
    """A runtime image with the facts of its labels; a foreign image has none (`sms` None).

    `patches` are those that it was compiled with; None where no label says so.
    """

    name: str
    triton: str | None = None
    sms: tuple[Sm, ...] | None = None
    base: str | None = None
    user: tuple[int, int] = USER
    server: str | None = None
    patches: frozenset[str] | None = None
    left_out: LeftOut = NOTHING

    def runs_on(self, gpus: Sequence[Gpu]) -> bool:
        """Return whether it has machine code for all of them, according to its labels."""
        return self.sms is None or all(device.runs(self.sms) for device in gpus)

    def is_exact_for(self, gpus: Sequence[Gpu]) -> bool:
        """Return whether it was compiled for the exact SM of each."""
        return all(device.sm in (self.sms or ()) for device in gpus)


@dataclass(frozen=True)
class ImageChoice:
    """The options that choose an image, as typed; None matches any."""

    image: str | None = None
    triton: str | None = None
    sm: str | None = None
    base: str | None = None

    def takes(self, image: Image) -> bool:
        """Return whether an image matches the options."""
        sms = None if self.sm is None else set(parse_sms(self.sm))
        return (
            self.triton in (None, image.triton)
            and self.base in (None, image.base)
            and (sms is None or sms == set(image.sms or ()))
        )

    @property
    def is_for_an_sm(self) -> bool:
        """Whether the options decide the GPUs that the image is for."""
        return bool(self.image or self.sm)

    def __str__(self) -> str:
        options = {"triton": self.triton, "sm": self.sm, "base": self.base}
        return " ".join(f"--{name} {value}" for name, value in options.items() if value) or "any options"


def find(
    client: docker.DockerClient,
    config: Config,
    choice: ImageChoice,
    indices: Sequence[int] | None,
    *,
    here: bool = True,
    report: Reporter = to_stderr,
) -> tuple[Image, Access | None]:
    """Return the image to serve with, and the GPUs of `indices` (None: all) that a container of it gets.

    A deployment that is written down instead of served `here` needs no GPU; local GPUs then decide only what
    the options leave open. A named image is pulled to be served. A choice among images that are as good as
    each other is reported. Raises ConfigError when no local image
    matches the options, HostError when none runs on these GPUs or a named image cannot be pulled.
    """
    if choice.image and here:
        container.available(client, choice.image, "serving", "docker login, or invoke build and no --image")
    candidates = [_named(client, choice.image)] if choice.image else list(_built(client, config, choice))
    if not candidates:
        raise ConfigError(
            f"no local image of {config.matrix.image} matches {choice}",
            hint="invoke build with these options, or --image",
        )
    access = None
    on_gpu = config.models.device == "gpu"
    if on_gpu and (here or not choice.is_for_an_sm):
        access = gpu.find(client, candidates[0].name, indices=indices)
        if access is None and here:
            raise HostError(
                f"no container here gets {_names(indices)}",
                hint="nvidia-smi lists the GPUs; the engine needs nvidia-container-toolkit or CDI",
            )
    if on_gpu and access is None and len({image.sms for image in candidates}) > 1:
        names = ", ".join(sorted(image.name for image in candidates))
        raise ConfigError(
            f"without a GPU on this machine, several images fit: {names}", hint="choose with --sm or --image"
        )
    defaults = {name: release.base for name, release in config.matrix.releases.items()}
    best = equally_good(candidates, access.gpus if access else (), defaults)
    if len(best) > 1:
        others = ", ".join(image.name for image in best[1:])
        report(
            f"{best[0].name} is taken, by fewest SMs, then by name; {others} would also do (--sm, --image)"
        )
    return best[0], access


def choose(images: Iterable[Image], gpus: Sequence[Gpu], defaults: Mapping[str, str]) -> Image:
    """Choose the first of those that are `equally_good`."""
    return equally_good(images, gpus, defaults)[0]


def equally_good(images: Iterable[Image], gpus: Sequence[Gpu], defaults: Mapping[str, str]) -> list[Image]:
    """Return the best images for `gpus`: the exact SM first, then those that leave nothing out, then the
    newest release, then its own base.

    `defaults` is the base of each release. Of several, the one with the fewest SMs comes first, then by name.
    Raises HostError, with what there is, when no image has machine code for all GPUs.
    """
    images = list(images)
    fit = [image for image in images if image.runs_on(gpus)]
    if not fit:
        here = ", ".join(dict.fromkeys(map(str, gpus)))
        there = ", ".join(f"{image.name} ({sm_codes(image.sms or ())})" for image in images)
        raise HostError(f"no image here runs on {here}", where=there, hint=_BUILD)

    def merit(image: Image) -> tuple[bool, bool, Version, bool]:
        is_default = image.base == defaults.get(image.triton or "")
        return image.is_exact_for(gpus), not image.left_out, Version(image.triton or "0"), is_default

    best = max(map(merit, fit))
    equal = [image for image in fit if merit(image) == best]
    return sorted(equal, key=lambda image: (len(image.sms or ()), image.name))


def described(name: str, labels: Mapping[str, str], user: str = "") -> Image:
    """Return an image by its labels and its `USER`."""
    sms, patches = labels.get(f"{LABELS}.sm"), labels.get(f"{LABELS}.patches")
    return Image(
        name,
        labels.get(f"{LABELS}.triton"),
        parse_sms(sms) if sms else None,
        labels.get(f"{LABELS}.base"),
        _user(user),
        labels.get(f"{LABELS}.server"),
        None if patches is None else frozenset(patches.split()),
        features.of_labels(labels, LABELS),
    )


def _user(text: str) -> tuple[int, int]:
    """Parse `uid:gid` of a Dockerfile's USER; a name, whose ids are unknown, counts as 1000."""
    uid, _, gid = text.partition(":")
    if not uid:
        return (0, 0)
    return (int(uid), int(gid or uid)) if uid.isdecimal() and (gid or uid).isdecimal() else USER


def _named(client: docker.DockerClient, name: str) -> Image:
    """Return an image by name; one that is not here has no facts."""
    image = daemon.image(client, name)
    if image is None:
        return Image(name)
    return described(name, image.labels, image.attrs["Config"].get("User") or "")


def _built(client: docker.DockerClient, config: Config, choice: ImageChoice) -> Iterator[Image]:
    """Yield the moving tags of runtime images that `invoke build` left here."""
    labels = [f"{LABELS}.product=runtime"]
    for local in client.images.list(name=config.matrix.image, filters={"label": labels}):
        name = f"{config.matrix.image}:{local.labels.get(f'{LABELS}.cell')}"
        image = described(name, local.labels, local.attrs["Config"].get("User") or "")
        if name in local.tags and choice.takes(image):
            yield image


def _names(indices: Sequence[int] | None) -> str:
    return "a GPU" if indices is None else f"GPU {', '.join(map(str, indices))}"
