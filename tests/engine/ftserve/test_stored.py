"""Model repositories in real servers of S3 and Google's protocol, fetched as the written containers do it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import docker
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from ftbuild import triton
from ftserve import stored
from ftserve.deployment import Deployment
from ftserve.image_choice import Image
from ftserve.targets import apptainer, compose
from testing import needs
from testing.serving import RIGHT, answer
from tests.engine.ftserve import stores
from tests.engine.ftserve.stores import Asked, Fate, Store

KEYS = {"AWS_ACCESS_KEY_ID": "ada", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
# Nothing here is a machine of a cloud, whose identity could be asked for; and a broken server stays broken.
ALONE = {"AWS_EC2_METADATA_DISABLED": "true", "RCLONE_LOW_LEVEL_RETRIES": "1"}
CONFIG = "fastertransformer/config.pbtxt"
WEIGHTS = "fastertransformer/1/1-gpu/model.wte.bin"
FILES = {
    CONFIG: b'name: "fastertransformer"',
    WEIGHTS: bytes(range(256)) * 4000,
    "my model/config.pbtxt": b'name: "my model"',
    "my model/1/a file (one).bin": b"1",
}
OTHERS = {CONFIG: b'name: "faster-transformer"', WEIGHTS: bytes(1000)}


@pytest.fixture(scope="module", params=["s3", "gs"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Return a server of object storage."""
    with stores.running(request.param, "127.0.0.1", tmp_path_factory.mktemp("store") / "log") as found:
        yield found


@pytest.fixture
def store(server: Store) -> Store:
    """Return a server with the repository `models/gptj`."""
    server.renew(FILES)
    return server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder to fetch into, which does not exist."""
    return tmp_path / "fetched"


def fetched(
    where: stored.Stored, folder: Path, credentials: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Start what the container starts, with another folder in the place of its volume."""
    needs.program("rclone")
    argv = [word if word != triton.MODELS else str(folder) for word in where.command]
    own = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), **ALONE}
    own |= KEYS if credentials is None else credentials
    return subprocess.run(
        [*where.entrypoint, *argv],
        env={**own, **where.environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def contents(folder: Path) -> dict[str, bytes]:
    """Return what a server finds in the folder: the files of its folders."""
    files = (path for path in folder.glob("*/**/*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def require_failed(done: subprocess.CompletedProcess[str], folder: Path, says: str) -> None:
    """Require a message, and that no server takes what is there for a model."""
    assert done.returncode, done.stderr
    assert says in done.stderr.strip().splitlines()[-1]
    assert not list(folder.glob("*/config.pbtxt"))


def test_a_repository_is_fetched(store: Store, folder: Path) -> None:
    done = fetched(store.where(), folder)
    assert done.returncode == 0, done.stderr
    assert contents(folder) == FILES


def test_what_is_fetched_already_is_not_fetched_again(store: Store, folder: Path) -> None:
    fetched(store.where(), folder)
    weights = folder / WEIGHTS
    before = weights.stat()
    again = fetched(store.where(), folder)
    assert again.returncode == 0, again.stderr
    assert weights.stat().st_ino == before.st_ino
    # Unless it is another by now.
    weights.write_bytes(bytes(before.st_size))
    assert fetched(store.where(), folder).returncode == 0
    assert contents(folder) == FILES


def test_what_the_storage_no_longer_has_is_not_served(store: Store, folder: Path) -> None:
    fetched(store.where(), folder)
    store.delete("my model/config.pbtxt")
    done = fetched(store.where(), folder)
    assert done.returncode == 0, done.stderr
    assert contents(folder) == {name: FILES[name] for name in FILES if name != "my model/config.pbtxt"}


def test_files_of_others_are_not_deleted(store: Store, folder: Path) -> None:
    (folder / "thesis").mkdir(parents=True)
    (folder / "thesis" / "text").write_text("mine")
    require_failed(fetched(store.where(), folder), folder, "were not fetched, and would be deleted")
    assert contents(folder) == {"thesis/text": b"mine"}


def test_a_bucket_that_does_not_exist(store: Store, folder: Path) -> None:
    done = fetched(store.where("missing/gptj"), folder)
    require_failed(done, folder, f"{store.scheme}://missing/gptj cannot be listed: is this its name")


@pytest.mark.parametrize(
    ("place", "has"),
    [
        ("models/gtpj", "nothing"),
        ("models", "gptj/fastertransformer/1/1-gpu/model.wte.bin gptj/fastertransformer/config.pbtxt"),
        ("models/gptj/fastertransformer", "1/1-gpu/model.wte.bin config.pbtxt"),
    ],
)
def test_a_path_that_is_no_repository(place: str, has: str, store: Store, folder: Path) -> None:
    done = fetched(store.where(place), folder)
    require_failed(done, folder, f"{store.scheme}://{place} is no model repository")
    assert f"MODEL/config.pbtxt. It has: {has}" in done.stderr
    assert not folder.exists()


def test_names_that_no_file_can_have(store: Store, folder: Path) -> None:
    store.put("fastertransformer//1/weights", b"not fetched")
    done = fetched(store.where(), folder)
    require_failed(done, folder, "names that no file can have: fastertransformer//1/weights")


def test_no_server_answers(store: Store, folder: Path) -> None:
    nowhere = replace(store.where(), endpoint="http://127.0.0.1:1/storage/v1/")
    require_failed(fetched(nowhere, folder), folder, "cannot be listed")


def test_an_answer_that_is_cut_short_is_asked_for_again(store: Store, folder: Path) -> None:
    cut: list[Asked] = []

    def once(asked: Asked) -> Fate:
        if cut or not store.is_download(asked, "model.wte.bin"):
            return Fate.ANSWERED
        cut.append(asked)
        return Fate.CUT

    with stores.between(store, once) as spoilt:
        done = fetched(spoilt.where(), folder)
    assert cut
    assert done.returncode == 0, done.stderr
    assert contents(folder) == FILES


@pytest.mark.parametrize("fate", [Fate.CUT, Fate.LOST])
def test_a_store_that_breaks_leaves_nothing_to_serve(fate: Fate, store: Store, folder: Path) -> None:
    def always(asked: Asked) -> Fate:
        return fate if store.is_download(asked, "model.wte.bin") else Fate.ANSWERED

    with stores.between(store, always) as spoilt:
        require_failed(fetched(spoilt.where(), folder), folder, "was not fetched as a whole")
    # Once it is back, nothing has to be cleaned up.
    assert fetched(store.where(), folder).returncode == 0
    assert contents(folder) == FILES


def test_a_store_that_ends_leaves_no_half_of_another_model(store: Store, folder: Path) -> None:
    fetched(store.where(), folder)
    ended: list[Asked] = []

    def ends(asked: Asked) -> Fate:
        ended.extend([asked] if store.is_download(asked, "model.wte.bin") else [])
        return Fate.LOST if ended else Fate.ANSWERED

    store.put(WEIGHTS, OTHERS[WEIGHTS])
    with stores.between(store, ends) as spoilt:
        require_failed(fetched(spoilt.where(), folder), folder, "was not fetched as a whole")
    # What was whole stays so if nothing of the other is there yet.
    fetched(store.where(), folder)
    with stores.between(store, lambda _: Fate.LOST) as spoilt:
        assert fetched(spoilt.where(), folder).returncode
    assert contents(folder) == {**FILES, WEIGHTS: OTHERS[WEIGHTS]}


@pytest.mark.parametrize("at", [WEIGHTS, CONFIG])
def test_a_model_that_changes_meanwhile_is_fetched_once_more(at: str, store: Store, folder: Path) -> None:
    changed: list[Asked] = []

    def changes(asked: Asked) -> Fate:
        if not changed and store.is_download(asked, at.rpartition("/")[2]):
            changed.append(asked)
            for name, content in OTHERS.items():
                store.put(name, content)
        return Fate.ANSWERED

    with stores.between(store, changes) as restless:
        done = fetched(restless.where(), folder)
    assert done.returncode == 0, done.stderr
    assert "has changed meanwhile: once more" in done.stderr
    assert contents(folder) == {**FILES, **OTHERS}


def test_a_model_that_never_rests_is_not_served(store: Store, folder: Path) -> None:
    count = 0

    def changes(asked: Asked) -> Fate:
        nonlocal count
        if store.is_download(asked, "config.pbtxt"):
            count += 1
            store.put(WEIGHTS, bytes(count))
        return Fate.ANSWERED

    with stores.between(store, changes) as restless:
        require_failed(fetched(restless.where(), folder), folder, "changes while it is fetched")


def key_of_a_service_account(url: str) -> str:
    """Return the JSON that Google's console hands out, for a server of tokens at `url`."""
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    named = {"client_email": "models-reader@example.iam.gserviceaccount.com", "private_key_id": "1"}
    named |= {"type": "service_account", "private_key": key.decode(), "token_uri": f"{url}/token"}
    return json.dumps(named)


def only(allowed: Callable[[str], bool]) -> Callable[[Asked], Fate]:
    """Return what denies requests by their header Authorization."""
    return lambda asked: Fate.ANSWERED if allowed(asked.authorization) else Fate.DENIED


def credentials_of(store: Store, folder: Path, way: str) -> dict[str, str]:
    if store.scheme == "s3":
        return KEYS
    key = key_of_a_service_account(store.url)
    if way == "value":
        return {"RCLONE_CONFIG_MODELS_SERVICE_ACCOUNT_CREDENTIALS": key}
    file = folder.parent / "key.json"
    file.write_text(key)
    return {"GOOGLE_APPLICATION_CREDENTIALS": str(file)}


@pytest.mark.parametrize("way", ["value", "file"])
def test_a_private_bucket_is_asked_with_credentials(way: str, store: Store, folder: Path) -> None:
    begins = "AWS4-HMAC-SHA256 Credential=ada/" if store.scheme == "s3" else f"Bearer {stores.TOKEN}"
    with stores.between(store, only(lambda header: header.startswith(begins))) as private:
        credentials = credentials_of(private, folder, way)
        done = fetched(replace(private, anonymous=False).where(), folder, credentials)
    assert done.returncode == 0, done.stderr
    assert contents(folder) == FILES


def test_a_public_bucket_is_asked_without(store: Store, folder: Path) -> None:
    with stores.between(store, only(lambda header: not header)) as public:
        done = fetched(replace(public, anonymous=True).where(), folder)
    assert done.returncode == 0, done.stderr
    assert contents(folder) == FILES


@pytest.mark.parametrize("anonymous", [True, False])
def test_credentials_that_are_missing(anonymous: bool, store: Store, folder: Path) -> None:
    with stores.between(store, only(bool)) as private:
        done = fetched(replace(private, anonymous=anonymous).where(), folder, {})
    require_failed(done, folder, "may these credentials read it?")


@pytest.mark.parametrize("server", ["gs"], indirect=True)
def test_a_key_that_is_none(store: Store, folder: Path) -> None:
    nonsense = {"RCLONE_CONFIG_MODELS_SERVICE_ACCOUNT_CREDENTIALS": "key.json"}
    done = fetched(replace(store, anonymous=False).where(), folder, nonsense)
    require_failed(done, folder, "may these credentials read it?")


def test_the_script_beside_a_batch_script_fetches_it(
    store: Store, wanted: Deployment, tmp_path: Path
) -> None:
    files = apptainer.render(replace(wanted, models=None), stored=store.where())
    script = tmp_path / "my folder" / apptainer.FETCH
    script.parent.mkdir()
    script.write_text(files[apptainer.FETCH])
    needs.program("rclone")
    own = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **KEYS}
    done = subprocess.run(["bash", script], env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert contents(script.parent / apptainer.FETCHED) == FILES
    assert "default=$here/models" in files[apptainer.START]
    # Into a folder that rclone would take for a remote.
    done = subprocess.run(
        ["bash", script, "of:mine"], cwd=tmp_path, env=own, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "of:mine") == FILES


@pytest.fixture
def fetcher(client: docker.DockerClient, sample_image: Image, tmp_path: Path) -> Iterator[str]:
    """An image with rclone as its entrypoint, and a shell, as rclone's own is."""
    (tmp_path / "image").mkdir()
    shutil.copy(needs.program("rclone"), tmp_path / "image" / "rclone")
    recipe = f'FROM {sample_image.name}\nUSER 0\nCOPY rclone /usr/bin/rclone\nENTRYPOINT ["rclone"]\n'
    (tmp_path / "image" / "Dockerfile").write_text(recipe)
    name = f"ftbuild-test-rclone:{uuid.uuid4().hex[:8]}"
    client.images.build(path=str(tmp_path / "image"), tag=name, rm=True)
    yield name
    client.images.remove(name, force=True)


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_compose_fetches_and_serves(
    scheme: str, client: docker.DockerClient, wanted: Deployment, fetcher: str, tmp_path: Path
) -> None:
    assert wanted.models is not None
    # Object storage has no empty folders, and Triton finds the version of a model by one.
    (wanted.models / "fastertransformer" / "1" / "weights").write_text("none: it answers by a rule")
    files = contents(wanted.models)
    host = client.networks.get("bridge").attrs["IPAM"]["Config"][0]["Gateway"]
    file = tmp_path / "compose.yaml"
    program = [*needs.compose(), "--file", str(file)]
    begin = [*program, "up", "--detach", "--wait", "--wait-timeout", "90"]
    own = {**os.environ, **KEYS}
    with stores.running(scheme, host, tmp_path / "store.log") as store:
        store.renew(files)

        def up(place: str) -> subprocess.CompletedProcess[str]:
            text = compose.render(replace(wanted, models=None), store.where(place, fetcher))
            file.write_text(text.replace("interval: 10s", "interval: 1s"))
            return subprocess.run(begin, env=own, capture_output=True, text=True, check=False)

        try:
            # Nothing starts on half a repository, or on none.
            assert up("models/gtpj").returncode
            logs = subprocess.run([*program, "logs"], capture_output=True, text=True, check=True).stdout
            assert f"{scheme}://models/gtpj is no model repository" in logs
            assert "triton-1" not in logs
            done = up("models/gptj")
            assert done.returncode == 0, done.stderr
            assert answer(wanted.ports.http) == RIGHT
        finally:
            subprocess.run([*program, "down", "--volumes", "--timeout", "1"], capture_output=True, check=True)
