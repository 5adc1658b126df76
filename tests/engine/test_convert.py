"""Conversions in the sample SDK image: whole weights that belong to the caller, or nothing at all."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ftbuild.config import loader
from ftbuild.config.checkpoints import Relayout
from ftbuild.config.schema import Config
from ftbuild.engine import daemon
from ftbuild.errors import ConversionError, HostError
from ftbuild.host import disk
from ftbuild.models import conversion, conversion_run, converters
from ftbuild.models.conversion import ConversionRequest
from ftbuild.plan import Plan
from testing import tidiness
from testing.sample import SAMPLE, Derive
from testing.waiting import until

if TYPE_CHECKING:
    import docker
    from docker.models.containers import Container

RELEASE = "22.12"
SCRIPTS = {
    "gpt": "gpt/utils/huggingface_gpt_convert.py",
    "mpt": "gpt/utils/huggingface_gpt_convert.py",
    "gptj": "gptj/utils/huggingface_gptj_ckpt_convert.py",
    "gptneox": "gptneox/utils/huggingface_gptneox_convert.py",
    "t5": "t5/utils/huggingface_t5_ckpt_convert.py",
}
OTHER_USER = 4321
# Converters as bad as upstream's, each in its own way.
CRASHES = 'raise SystemExit("the weights are cursed")'
SAYS_ERROR = """print("[ERROR] cannot find key 'lm_head.weight'")"""
LOSES_A_FILE = """import os; os.remove("/convert/out/1-gpu/model.wte.bin")"""
HANGS = "import time; time.sleep(600)"
# What code of a checkpoint would do: look for rights and a network, and leave a link for the host to follow.
ESCAPES = "; ".join(
    [
        "import os, re",
        "status = open('/proc/self/status').read()",
        "print(re.findall('(?:CapEff|CapBnd|NoNewPrivs):.*', status), os.listdir('/sys/class/net'))",
        "os.symlink('/etc/passwd', '/convert/out/conversion.json')",
    ]
)


@pytest.fixture(scope="module")
def config() -> Config:
    return loader.load(SAMPLE)


@pytest.fixture(scope="module")
def checkpoints(reference: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of each family."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for family in SCRIPTS:
        reference.write(reference.make(), family, folder / family)
    return folder


@pytest.fixture
def spoilt(derive: Derive) -> Callable[[str, str, str], str]:
    """An SDK image with a line at the end (`>>`) or in the place (`>`) of a converter."""

    def make(script: str, line: str, redirection: str) -> str:
        file = f"{converters.TREE}/examples/pytorch/{script}"
        return derive("sdk", f"RUN echo {shlex.quote(line)} {redirection} {file}")

    return make


def convert(client: docker.DockerClient, config: Config, image: str, order: ConversionRequest) -> Path:
    return conversion_run.convert(client, conversion.plan_conversion(config, RELEASE, order), image, print)


def converting(client: docker.DockerClient, image: str) -> list[Container]:
    """The containers that convert in this image."""
    return client.containers.list(filters={"ancestor": image, "label": "io.ftbuild.role=convert"})


def when_running(client: docker.DockerClient, image: str, act: Callable[[Container], None]) -> None:
    """Do something to the converter's container as soon as it runs."""

    def wait() -> None:
        if until(lambda: converting(client, image)):
            act(converting(client, image)[0])

    threading.Thread(target=wait, daemon=True).start()


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("family", SCRIPTS)
def test_each_family_is_converted_for_the_caller(
    family: str,
    gpus: int,
    client: docker.DockerClient,
    built: Plan,
    config: Config,
    checkpoints: Path,
    reference: ModuleType,
    tmp_path: Path,
) -> None:
    # As Hugging Face's cache: links from a snapshot into the blobs beside it.
    links = tmp_path / "cached" / "snapshots" / "0123abc"
    links.mkdir(parents=True)
    shutil.copytree(checkpoints / family, tmp_path / "cached" / "blobs")
    for file in (tmp_path / "cached" / "blobs").iterdir():
        (links / file.name).symlink_to(file)
    made = convert(client, config, built.tag("sdk"), ConversionRequest(family, links, tmp_path / "out", gpus))
    assert made == tmp_path / "out" / f"{gpus}-gpu"
    assert left(tmp_path) == {"cached", "out", "out.log"}
    assert left(tmp_path / "out") == {f"{gpus}-gpu", conversion_run.RECORD}
    assert {path.stat().st_uid for path in (tmp_path / "out").rglob("*")} == {os.getuid()}
    assert f"files in /convert/out/{gpus}-gpu" in (tmp_path / "out.log").read_text()
    record = json.loads((tmp_path / "out" / conversion_run.RECORD).read_text())
    assert (record["family"], record["release"], record["gpus"], record["data_type"]) == (
        family, RELEASE, gpus, "fp32",
    )  # fmt: skip
    checkpoint = reference.make()
    np.testing.assert_array_equal(
        np.fromfile(made / "model.wte.bin", np.float32), np.array(checkpoint.table, np.float32).ravel()
    )
    for number, layer in enumerate(checkpoint.layers):
        for rank, rows in enumerate(np.split(np.array(layer, np.float32), gpus)):
            file = made / f"model.layers.{number}.mlp.dense_4h_to_h.weight.{rank}.bin"
            np.testing.assert_array_equal(np.fromfile(file, np.float32), rows.ravel())


def test_half_precision_is_written_where_the_converter_can(
    client: docker.DockerClient, built: Plan, config: Config, checkpoints: Path, tmp_path: Path
) -> None:
    order = ConversionRequest("gptneox", checkpoints / "gptneox", tmp_path / "out", data_type="fp16")
    made = convert(client, config, built.tag("sdk"), order)
    assert (made / "model.wte.bin").stat().st_size == 2 * 258 * 16


@pytest.fixture
def others_folder(checkpoints: Path) -> Iterator[Path]:
    """A folder of another user, who can use the engine, with a checkpoint."""
    if os.getuid():
        pytest.skip("only root can become another user; every other test here is such a one then")
    folder = Path(tempfile.mkdtemp(dir=tidiness.SYSTEM))
    shutil.copytree(checkpoints / "gpt", folder / "gpt")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, OTHER_USER, OTHER_USER)
    yield folder
    shutil.rmtree(folder)


def test_the_weights_belong_to_whoever_converts(
    client: docker.DockerClient, built: Plan, config: Config, others_folder: Path
) -> None:
    socket = Path(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://"))
    group = socket.stat().st_gid
    image, order = built.tag("sdk"), ConversionRequest("gpt", others_folder / "gpt", others_folder / "out")
    planned = conversion.plan_conversion(config, RELEASE, order)
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setgroups([group])
            os.setgid(OTHER_USER)
            os.setuid(OTHER_USER)
            conversion_run.convert(daemon.connect(), planned, image, print)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    written = [others_folder / "out.log", others_folder / "out", *(others_folder / "out").rglob("*")]
    assert len(written) > 5
    assert {(path.stat().st_uid, path.stat().st_gid) for path in written} == {(OTHER_USER, OTHER_USER)}


@pytest.mark.parametrize(
    ("family", "line", "redirection", "what"),
    [
        ("gpt", CRASHES, ">", "the converter ended with code 1"),
        ("t5", SAYS_ERROR, ">>", "the converter left something out"),
        ("gptj", LOSES_A_FILE, ">>", "its weights are incomplete"),
    ],
    ids=["crashes", "says-error", "loses-a-file"],
)
def test_a_converter_that_fails_leaves_its_words_and_nothing_else(
    family: str,
    line: str,
    redirection: str,
    what: str,
    client: docker.DockerClient,
    spoilt: Callable[[str, str, str], str],
    config: Config,
    checkpoints: Path,
    tmp_path: Path,
) -> None:
    image = spoilt(SCRIPTS[family], line, redirection)
    with pytest.raises(ConversionError, match=what) as caught:
        convert(client, config, image, ConversionRequest(family, checkpoints / family, tmp_path / "out"))
    words = {
        "gpt": "the weights are cursed",
        "t5": "[ERROR] cannot find key",
        "gptj": "model.wte.bin is missing",
    }
    assert words[family] in caught.value.what
    assert caught.value.where == str(tmp_path / "out.log")
    assert left(tmp_path) == {"out.log"}


def test_a_converter_has_no_rights_and_no_network_and_its_links_are_not_followed(
    client: docker.DockerClient,
    spoilt: Callable[[str, str, str], str],
    config: Config,
    checkpoints: Path,
    tmp_path: Path,
) -> None:
    image = spoilt(SCRIPTS["gptj"], ESCAPES, ">>")
    with pytest.raises(
        ConversionError, match=r"'conversion\.json' is neither a file nor a folder, but a link"
    ):
        convert(client, config, image, ConversionRequest("gptj", checkpoints / "gptj", tmp_path / "out"))
    assert left(tmp_path) == {"out.log"}
    none = "0" * 16
    assert (
        f"['CapEff:\\t{none}', 'CapBnd:\\t{none}', 'NoNewPrivs:\\t1'] ['lo']"
        in (tmp_path / "out.log").read_text()
    )


def test_a_converter_that_hangs_is_given_up(
    client: docker.DockerClient,
    spoilt: Callable[[str, str, str], str],
    config: Config,
    checkpoints: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = spoilt(SCRIPTS["gptj"], HANGS, ">")
    monkeypatch.setattr(conversion_run, "STALL_SECONDS", 3)
    with pytest.raises(ConversionError, match="has written nothing for"):
        convert(client, config, image, ConversionRequest("gptj", checkpoints / "gptj", tmp_path / "out"))
    assert converting(client, image) == []
    assert left(tmp_path) == {"out.log"}


def test_a_container_that_is_taken_away_is_told_and_leaves_nothing(
    client: docker.DockerClient,
    spoilt: Callable[[str, str, str], str],
    config: Config,
    checkpoints: Path,
    tmp_path: Path,
) -> None:
    image = spoilt(SCRIPTS["gptj"], HANGS, ">")
    when_running(client, image, lambda container: container.remove(force=True))
    with pytest.raises(HostError, match="container was lost: No such container"):
        convert(client, config, image, ConversionRequest("gptj", checkpoints / "gptj", tmp_path / "out"))
    assert left(tmp_path) <= {"out.log"}


def test_an_interrupt_ends_the_container_and_leaves_nothing(
    client: docker.DockerClient,
    spoilt: Callable[[str, str, str], str],
    config: Config,
    checkpoints: Path,
    tmp_path: Path,
) -> None:
    image = spoilt(SCRIPTS["gptj"], HANGS, ">")
    when_running(client, image, lambda container: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        convert(client, config, image, ConversionRequest("gptj", checkpoints / "gptj", tmp_path / "out"))
    assert converting(client, image) == []
    assert left(tmp_path) <= {"out.log"}


def test_a_checkpoint_in_another_layout_is_saved_anew_first(
    client: docker.DockerClient, built: Plan, config: Config, checkpoints: Path, tmp_path: Path
) -> None:
    """The sample's converter reads model.safetensors alone, as upstream's reads pytorch_model.bin."""
    folder = tmp_path / "sharded"
    shutil.copytree(checkpoints / "gptj", folder)
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"w": "part.safetensors"}}')
    script = tmp_path / "script.py"
    script.write_text(
        "import shutil, sys\nlayout, source, target, name = sys.argv[1:]\nassert layout == 'whole'\n"
        "shutil.copytree(source, target)\nshutil.move(f'{target}/{name}', f'{target}/model.safetensors')\n"
    )
    planned = conversion.plan_conversion(config, RELEASE, ConversionRequest("gptj", folder, tmp_path / "out"))
    with pytest.raises(ConversionError, match=r"No such file.*model\.safetensors"):
        conversion_run.convert(client, planned, built.tag("sdk"), print)
    layout = Relayout(script=str(script), layout="whole")
    made = conversion_run.convert(
        client, replace(planned, relayout=layout, relayout_script=script), built.tag("sdk"), print
    )
    assert (made / "model.wte.bin").exists()
    assert left(tmp_path / "out") == {"1-gpu", conversion_run.RECORD}


def test_a_config_is_written_for_a_converter_that_writes_none(
    client: docker.DockerClient, built: Plan, config: Config, checkpoints: Path, tmp_path: Path
) -> None:
    planned = conversion.plan_conversion(
        config, RELEASE, ConversionRequest("gpt", checkpoints / "gpt", tmp_path / "out")
    )
    values = {
        "head_num": "2", "size_per_head": "8", "num_layer": "2", "vocab_size": "258", "start_id": "256",
        "end_id": "257", "weight_data_type": "fp32", "model_name": "ours",
    }  # fmt: skip
    converter = planned.converter.model_copy(update={"config": {"gpt": values}})
    made = conversion_run.convert(client, replace(planned, converter=converter), built.tag("sdk"), print)
    assert "model_name = ours" in (made / "config.ini").read_text()


def test_what_the_disk_lacks_is_said_before_anything_is_written(
    client: docker.DockerClient,
    built: Plan,
    config: Config,
    checkpoints: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned = conversion.plan_conversion(
        config, RELEASE, ConversionRequest("gpt", checkpoints / "gpt", tmp_path / "out")
    )
    monkeypatch.setattr(disk, "free_bytes", lambda folder: planned.needed - 1)
    with pytest.raises(HostError, match="the conversion needs"):
        conversion_run.convert(client, planned, built.tag("sdk"), print)
    assert left(tmp_path) == set()
