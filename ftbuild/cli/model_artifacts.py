"""Commands on model repositories in a registry."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ftbuild.cli.command import command

SignKey = Annotated[str | None, "key for cosign (default: FTBUILD_COSIGN_KEY; neither: no signature)"]
SignLog = Annotated[bool, "the signature has an entry in the public transparency log"]


def publish(folder: Path, to: str, sign_key: str | None, sign_log: bool) -> None:
    """Push a repository, sign it, and print its name by digest."""
    from ftbuild.publishing import model_artifact
    from ftbuild.publishing.signing import signer
    from ftbuild.text import reporter

    place = model_artifact.Place.parse(to)
    name = model_artifact.push(folder, place, signer(sign_key, sign_log), reporter.to_stderr)
    print(name)
    print(f"next: invoke serve.k8s --model-uri {name} --model-repo {folder}")


@command("model-repo.push")
def push(
    model_repo: Annotated[Path, "folder that invoke model-repo wrote"],
    to: Annotated[str, "oci://HOST/PATH:TAG in a registry"],
    sign_key: SignKey = None,
    sign_log: SignLog = True,
) -> int:
    """Push a model repository to a registry, sign it, and print its name by digest."""
    publish(model_repo, to, sign_key, sign_log)
    return 0


@command("model-repo.pull")
def pull(
    source: Annotated[str, "oci://HOST/PATH@sha256:DIGEST, the name that a push printed"],
    out: Annotated[Path, "folder to write; must not exist"],
    verify_key: Annotated[
        str | None, "file with cosign's public key: what it did not sign is refused"
    ] = None,
    sign_log: SignLog = True,
) -> int:
    """Fetch a model repository by digest; refuse one of which any byte has changed."""
    from ftbuild.publishing import model_artifact
    from ftbuild.text import reporter

    key = model_artifact.PublicKey(verify_key, sign_log) if verify_key else None
    model_artifact.pull(model_artifact.Place.parse(source), out, key, reporter.to_stderr)
    print(f"next: invoke serve --model-repo {out}")
    return 0
