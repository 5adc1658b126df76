"""Model repositories that no folder holds: in object storage, or in a registry (`invoke model-repo.push`).

Object storage is read by rclone (rclone.org), in a container of its own before the server starts: it knows
both clouds, their service accounts, and every server that speaks S3. ftbuild's images do not contain it.
rclone alone ends with success where there is nothing, and where what it copies changes meanwhile: the program
around it, `fetch_models.sh`, does not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ftbuild import triton
from ftbuild.errors import ConfigError
from ftbuild.registry import reference

BUCKETS = {"s3": "s3", "gs": "google cloud storage"}
REGISTRY = "oci"
# The folder of the repository in its image, as in KServe's modelcars.
FOLDER = "models"
# rclone takes a remote from variables of this name (its docs, "Environment Variables").
_REMOTE = "models"
SCRIPT = Path(__file__).with_name("fetch_models.sh").read_text(encoding="utf-8")
# What rclone and the clouds' libraries read; the values come from the Secret, or from Compose's shell.
_CREDENTIALS = {
    "s3": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"),
    "gs": ("RCLONE_CONFIG_MODELS_SERVICE_ACCOUNT_CREDENTIALS",),
}
# Where Google's API begins at an endpoint that names only a host: rclone takes it as it is.
_GOOGLES_API = "/storage/v1/"
# Names of buckets by both clouds' rules, with Google's dots and underscores.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_PATH = re.compile(r"[A-Za-z0-9!_.*'()/=+@ -]{0,1000}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PRINTABLE = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class Stored:
    """Where a model repository is: `scheme` is a key of BUCKETS or `oci`, `place` what stands behind it.

    `fetcher` is the image with rclone and a shell, `endpoint` the URL of another server than the cloud's own,
    or empty. A public bucket is asked `anonymous`ly.
    """

    scheme: str
    place: str
    fetcher: str = ""
    endpoint: str = ""
    anonymous: bool = False

    @property
    def uri(self) -> str:
        """The address as it was given."""
        return f"{self.scheme}://{self.place}"

    @property
    def image(self) -> str | None:
        """The image by digest that a container runtime mounts; None for object storage."""
        return self.place if self.scheme == REGISTRY else None

    @property
    def entrypoint(self) -> tuple[str, ...]:
        """What starts in the container, in the place of rclone: a shell."""
        return ("/bin/sh", "-c")

    @property
    def command(self) -> tuple[str, ...]:
        """The arguments of the shell: the program that fetches, its name, and what it fetches where."""
        return (SCRIPT, "fetch", self.uri, triton.MODELS)

    @property
    def credentials(self) -> tuple[str, ...]:
        """The names of the variables that hold secrets, as far as they are set."""
        return () if self.anonymous else _CREDENTIALS[self.scheme]

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that configure rclone for the storage, without secrets."""
        prefix = f"RCLONE_CONFIG_{_REMOTE.upper()}_"
        variables = {
            f"{prefix}TYPE": BUCKETS[self.scheme],
            f"{prefix}ENV_AUTH": "false" if self.anonymous else "true",
        }
        if self.scheme == "s3":
            variables[f"{prefix}PROVIDER"] = "Other" if self.endpoint else "AWS"
        elif self.anonymous:
            variables[f"{prefix}ANONYMOUS"] = "true"
        if self.endpoint:
            variables[f"{prefix}ENDPOINT"] = self.endpoint
        # No file configures it (rclone's docs, "--config"): anyone who may write one in /tmp of a shared
        # machine would decide from which server models come.
        return {**variables, "RCLONE_CONFIG": "/dev/null"}


def parse(
    uri: str, fetcher: str | None = None, endpoint: str | None = None, *, anonymous: bool = False
) -> Stored:
    """Return where a model repository is.

    Raises ConfigError for a URI that is none of s3://BUCKET/PATH, gs://BUCKET/PATH and
    oci://HOST/PATH@sha256:DIGEST, for a registry's without a digest, for object storage without an image that
    fetches it, and for an endpoint that is not a URL.
    """
    scheme, separator, place = uri.partition("://")
    if not separator or scheme not in (*BUCKETS, REGISTRY):
        raise ConfigError(
            f"{uri[:200]!r} is not the address of a model repository",
            hint="s3://BUCKET/PATH, gs://BUCKET/PATH, oci://HOST/PATH@sha256:DIGEST",
        )
    if scheme != REGISTRY:
        return _bucket(scheme, place, fetcher, endpoint, anonymous)
    if fetcher or endpoint or anonymous:
        raise ConfigError(
            "a registry's models are mounted by the container runtime",
            hint="leave out --fetch-image, --storage-endpoint and --storage-anonymous",
        )
    return _registry(place)


def _registry(place: str) -> Stored:
    name, _, digest = place.partition("@")
    if not _DIGEST.fullmatch(digest):
        raise ConfigError(
            f"oci://{place[:200]} has no digest: a tag may name another model tomorrow",
            hint="invoke model-repo.push prints it: oci://HOST/PATH@sha256:DIGEST",
        )
    reference.check_image(name)
    return Stored(REGISTRY, place)


def _bucket(scheme: str, place: str, fetcher: str | None, endpoint: str | None, anonymous: bool) -> Stored:
    bucket, _, path = place.partition("/")
    if not _BUCKET.fullmatch(bucket) or not _PATH.fullmatch(path) or ".." in path.split("/"):
        raise ConfigError(
            f"{scheme}://{place[:200]} is not a bucket with a path",
            hint=f"for instance {scheme}://models/gptj",
        )
    if not fetcher:
        raise ConfigError(
            f"nothing fetches {scheme}://{place[:200]}",
            hint="--fetch-image with rclone and a shell, such as rclone/rclone of Docker Hub by digest",
        )
    reference.check_image(fetcher)
    server = _endpoint(scheme, endpoint) if endpoint else ""
    return Stored(scheme, place.rstrip("/"), fetcher, server, anonymous)


def _endpoint(scheme: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        is_url = bool(parts.scheme in ("http", "https") and parts.hostname and parts.port != 0)
    except ValueError:  # brackets that do not match, or a port that is none
        is_url = False
    if not is_url or not _PRINTABLE.fullmatch(url) or parts.username or parts.query or parts.fragment:
        raise ConfigError(
            f"--storage-endpoint {url[:200]!r} is not the URL of a server",
            hint="for instance https://minio.example.com:9000",
        )
    return parts._replace(path=_GOOGLES_API).geturl() if scheme == "gs" and parts.path in ("", "/") else url
