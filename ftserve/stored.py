"""Model repositories that no folder holds: in object storage, or in a registry (`invoke model-repo.push`).

Object storage is read by rclone (rclone.org), in a container of its own before the server starts: it knows
both clouds, their service accounts, and every server that speaks S3. ftbuild's images do not contain it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
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
# What rclone and the clouds' libraries read; the values come from the Secret, or from Compose's shell.
CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "RCLONE_CONFIG_MODELS_SERVICE_ACCOUNT_CREDENTIALS",
)
# Names of buckets by both clouds' rules, with Google's dots and underscores.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_PATH = re.compile(r"[A-Za-z0-9!_.*'()/=+@-]{0,1000}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Stored:
    """Where a model repository is: `scheme` is a key of BUCKETS or `oci`, `place` what stands behind it.

    `fetcher` is the image with rclone, `endpoint` the URL of a server with S3's protocol, empty for the
    cloud's own.
    """

    scheme: str
    place: str
    fetcher: str = ""
    endpoint: str = ""

    @property
    def image(self) -> str | None:
        """The image by digest that a container runtime mounts; None for object storage."""
        return self.place if self.scheme == REGISTRY else None

    @property
    def command(self) -> tuple[str, ...]:
        """The arguments of rclone: copy everything, compare checksums, fail where there is nothing."""
        source = f"{_REMOTE}:{self.place}"
        return ("copy", "--checksum", "--transfers=8", "--retries=5", "--stats=30s", source, triton.MODELS)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that configure rclone for the storage, without secrets."""
        prefix = f"RCLONE_CONFIG_{_REMOTE.upper()}_"
        variables = {f"{prefix}TYPE": BUCKETS[self.scheme], f"{prefix}ENV_AUTH": "true"}
        if self.scheme == "s3":
            variables[f"{prefix}PROVIDER"] = "Other" if self.endpoint else "AWS"
        if self.endpoint:
            variables[f"{prefix}ENDPOINT"] = self.endpoint
        # The root of the container is read-only: rclone writes no configuration.
        return {**variables, "RCLONE_CONFIG": "/tmp/rclone.conf"}


def parse(uri: str, fetcher: str | None = None, endpoint: str | None = None) -> Stored:
    """Return where a model repository is.

    Raises ConfigError for a URI that is none of s3://BUCKET/PATH, gs://BUCKET/PATH and
    oci://HOST/PATH@sha256:DIGEST, for a registry's without a digest, and for object storage without an image
    that fetches it.
    """
    scheme, separator, place = uri.partition("://")
    if not separator or scheme not in (*BUCKETS, REGISTRY):
        raise ConfigError(
            f"{uri[:200]!r} is not the address of a model repository",
            hint="s3://BUCKET/PATH, gs://BUCKET/PATH, oci://HOST/PATH@sha256:DIGEST",
        )
    return (
        _registry(place, fetcher, endpoint)
        if scheme == REGISTRY
        else _bucket(scheme, place, fetcher, endpoint)
    )


def _registry(place: str, fetcher: str | None, endpoint: str | None) -> Stored:
    name, _, digest = place.partition("@")
    if not _DIGEST.fullmatch(digest):
        raise ConfigError(
            f"oci://{place[:200]} has no digest: a tag may name another model tomorrow",
            hint="invoke model-repo.push prints it: oci://HOST/PATH@sha256:DIGEST",
        )
    if fetcher or endpoint:
        raise ConfigError(
            "a registry's models are mounted by the container runtime", hint="leave out --fetch-image"
        )
    reference.check_image(name)
    return Stored(REGISTRY, place)


def _bucket(scheme: str, place: str, fetcher: str | None, endpoint: str | None) -> Stored:
    bucket, _, path = place.partition("/")
    if not _BUCKET.fullmatch(bucket) or not _PATH.fullmatch(path) or ".." in path.split("/"):
        raise ConfigError(
            f"{scheme}://{place[:200]} is not a bucket with a path",
            hint=f"for instance {scheme}://models/gptj",
        )
    if not fetcher:
        raise ConfigError(
            f"nothing fetches {scheme}://{place[:200]}",
            hint="--fetch-image with rclone as its entrypoint, such as rclone/rclone of Docker Hub by digest",
        )
    reference.check_image(fetcher)
    if endpoint:
        parts = urlsplit(endpoint)
        if scheme != "s3" or parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise ConfigError(
                f"--storage-endpoint {endpoint[:200]!r} is not the URL of a server with S3's protocol",
                hint="for instance https://minio.example.com:9000",
            )
    return Stored(scheme, place.rstrip("/"), fetcher, endpoint or "")
