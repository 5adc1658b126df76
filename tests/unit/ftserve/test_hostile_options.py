"""Options and repositories that would change what a server is, or what a written file says."""

from __future__ import annotations

import csv
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ftbuild.client.connection import checked
from ftbuild.errors import ConfigError, HostError
from ftbuild.registry import reference
from ftserve import requirements
from ftserve.deployment import Deployment, Options, Ports, decide, gpu_indices, size
from ftserve.image_choice import Image
from ftserve.requirements import Needs
from ftserve.targets import apptainer, compose, docker, kubernetes
from testing import ROOT
from testing.sample import SAMPLE

IMAGE = "registry.example:5000/team/triton_with_ft:22.12-sm80"
INJECTED = "x\n%post\n    touch /tmp/owned\n"


def deployment(models: Path | None, image: str = IMAGE, **ports: str) -> Deployment:
    return decide(Options(models, ports=Ports(**ports)), Needs(), Image(image), "cpu")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    [
        "--privileged", "-v=/:/host", "", " ", ":", "A B", "X", "x y", INJECTED, "x\n", "x:\n", "x@sha256:1",
        "x:" + "a" * 129, "x/" * 200 + "x", "x:a:b", "$(id)", "`id`", "x;y", 'x"y', "é", "x/../y", "\ud800",
    ],
)  # fmt: skip
def test_what_is_no_name_of_an_image_gets_into_no_command_and_no_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not the name of an image"):
        deployment(tmp_path, name)


@pytest.mark.parametrize(
    "name",
    [
        IMAGE, "x", "x:1", "localhost/x", "localhost:5000/x/y:z", "nvcr.io/nvidia/tritonserver:22.12-py3",
        "x@sha256:" + "a" * 64, "x:1@sha256:" + "a" * 64, "sha256:" + "0" * 64, "0123456789ab",
        "[::1]:5000/x", "ftbuild-base-open:fb3a001445f1-devel", "a__b/c.d-e",
    ],
)  # fmt: skip
def test_names_of_images_are_taken_as_docker_takes_them(name: str) -> None:
    assert reference.check_image(name) == name


@pytest.mark.parametrize("name", ["", "A", "x_y", "-x", "x.", "x\ny: z", "x" * 254, "../x", "x/y"])
def test_what_is_no_name_of_a_claim_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not the name of a claim"):
        kubernetes.Cluster(claim=name)


@pytest.mark.parametrize("name", ["a,b", 'a"b', "a'b", "a b", "$HOME", "$(id)", "a=b", ",target=/etc", "é"])
def test_a_path_means_itself_in_every_file(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir(parents=True)
    found = deployment(folder)
    argv = shlex.split(docker.command_line(found))
    (mount,) = (word.removeprefix("--mount=") for word in argv if word.startswith("--mount="))
    (fields,) = csv.reader([mount])
    assert fields == ["type=bind", f"source={folder}", "target=/models", "readonly"]
    service = yaml.safe_load(compose.render(found))["services"]["triton"]
    assert service["volumes"][0]["source"].replace("$$", "$") == str(folder)
    pod = next(yaml.safe_load_all(kubernetes.render(found)))["spec"]["template"]["spec"]
    assert pod["volumes"][0]["hostPath"]["path"] == str(folder)
    assert f"default={shlex.quote(str(folder))}\n" in apptainer.render(found)["triton_start.sh"]


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2J", "a\x7f", "\udce4", "a\u2028b"])
def test_a_path_that_no_line_can_hold_is_refused(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    with pytest.raises(ConfigError, match="not a path that every platform takes") as caught:
        deployment(folder)
    assert caught.value.what.isprintable()


def test_in_a_locale_without_umlauts_nothing_is_left_half_written(tmp_path: Path) -> None:
    (tmp_path / "größe").mkdir()
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    argv = ["serve.sif", "--image=x:1", "--model-repo", str(tmp_path / "größe")]
    done = subprocess.run(
        [sys.executable, "-m", "invoke", *argv, "--config", str(SAMPLE), "--out", str(tmp_path / "out")],
        cwd=ROOT, env=environment, capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, b"Traceback" in done.stderr) == (2, False), done.stderr
    assert not (tmp_path / "out").exists()


def test_an_image_that_cannot_be_saved_is_the_machines_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing")
    with pytest.raises(HostError) as caught:
        apptainer.write(deployment(None), tmp_path / "out", archive=True, report=print)
    assert caught.value.exit_code == 4
    assert not (tmp_path / "out" / "image.tar").exists()


def test_a_server_listens_on_this_machine_alone_unless_it_is_told(tmp_path: Path) -> None:
    def said(**ports: str) -> list[str]:
        found = deployment(tmp_path, **ports)
        published = yaml.safe_load(compose.render(found))["services"]["triton"]["ports"]
        line = [word for word in shlex.split(docker.command_line(found)) if word.startswith("--publish=")]
        assert [word.removeprefix("--publish=") for word in line] == published
        return list(published)

    assert said() == ["127.0.0.1:8000:8000", "127.0.0.1:8001:8001", "127.0.0.1:8002:8002"]
    assert said(listen="0.0.0.0")[0] == "0.0.0.0:8000:8000"
    assert said(listen="::1")[0] == "[::1]:8000:8000"
    for wrong in ("", "localhost", "127.0.0.1:8000", "1.2.3", "0.0.0.0\n", "x" * 10**6):
        with pytest.raises(ConfigError, match="is not an IP address"):
            Ports(listen=wrong)


class Remote:
    """An engine of another machine, as far as its address goes."""

    base_url = "http://10.1.2.3:2375"

    @property
    def api(self) -> Remote:
        return self

    @property
    def containers(self) -> Remote:
        return self

    def get(self, name: str) -> None:
        from docker.errors import NotFound

        raise NotFound(name)


def test_a_loopback_address_of_another_machine_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(
        ConfigError, match=r"the engine is on 10\.1\.2\.3, where 127\.0\.0\.1 cannot be reached"
    ):
        docker.refuse(Remote(), deployment(tmp_path), Image(IMAGE))  # type: ignore[arg-type]
    docker.refuse(Remote(), deployment(tmp_path, listen="0.0.0.0"), Image(IMAGE))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["-1", "0,0", "0,00", "x", "0,", "\uff11", "9" * 5000, "1e9", "99999"])
def test_gpus_are_a_list_of_indices(text: str) -> None:
    with pytest.raises(ConfigError, match="not a list of GPU indices"):
        gpu_indices(text)


@pytest.mark.parametrize("text", ["", "1", "-1g", "1t", "9" * 5000 + "g", "1\ng", "\uff11g"])
def test_shared_memory_is_a_size(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a size"):
        size(text)


@pytest.mark.parametrize(
    "address", ["localhost", "localhost:abc", "localhost:99999", "localhost:0", ":8000", "", "a b:1", "x:1/y"]
)
def test_what_is_no_address_of_a_server_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="is not an address") as caught:
        checked(address, "http")
    assert "host:port" in (caught.value.hint or "")


def test_an_address_may_be_typed_as_a_url() -> None:
    assert checked("http://localhost:8000/", "http") == "localhost:8000"
    assert checked("grpc://[::1]:8001", "grpc") == "[::1]:8001"
    with pytest.raises(ConfigError) as caught:
        checked("https://localhost:8000", "http")
    assert "TLS" in (caught.value.hint or "")


CONFIG = 'name: "m" backend: "fastertransformer"\n'


def parameter(name: str, value: str) -> str:
    return f'{CONFIG}parameters {{ key: "{name}" value: {{ string_value: "{value}" }} }}\n'


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("{", "not a config.pbtxt"),
        (CONFIG.encode("utf-16"), "not UTF-8 text"),
        (b"# caf\xe9\n", "not UTF-8 text"),
        (b"\x00", "control character"),
        ("x" * 300_000, "more than"),
        (
            'default_model_filename: "/etc" ' + CONFIG,
            "default_model_filename is /etc, which is not the name of a folder",
        ),
        (
            'default_model_filename: ".." ' + CONFIG,
            "default_model_filename is .., which is not the name of a folder",
        ),
        ('default_model_filename: "../.." ' + CONFIG, "default_model_filename is ../.., which"),
        (f'default_model_filename: "{"x" * 999}" ' + CONFIG, "which is not the name of a folder"),
        (parameter("model_checkpoint_path", "/models/../etc"), "which the container does not have"),
        (parameter("tensor_para_size", "0"), "tensor_para_size is '0', not a number from 1 to 1024"),
        (parameter("tensor_para_size", "-1"), "tensor_para_size is '-1', not"),
        (parameter("tensor_para_size", "1000000000"), "tensor_para_size is '1000000000', not"),
        (parameter("tensor_para_size", "1.5"), "tensor_para_size is '1.5', not"),
        (parameter("tensor_para_size", "9" * 5000), "tensor_para_size is '999"),
        (parameter("pipeline_para_size", "0"), "pipeline_para_size is '0', not a number from 1 to 1024"),
        (parameter("int8_mode", "x"), "int8_mode is 'x', not"),
    ],
)
def test_a_config_pbtxt_that_makes_no_sense_is_refused_by_its_name(
    content: str | bytes, what: str, tmp_path: Path
) -> None:
    file = tmp_path / "m" / "config.pbtxt"
    file.parent.mkdir()
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as caught:
        requirements.read(tmp_path)
    assert what in caught.value.what
    assert str(file) in (caught.value.where or "")
    assert len(str(caught.value)) < 2000


def test_gpus_of_all_models_together_are_limited(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    content = parameter("tensor_para_size", "1024")
    content += 'parameters { key: "pipeline_para_size" value: { string_value: "1024" } }'
    (tmp_path / "m" / "config.pbtxt").write_text(content)
    with pytest.raises(ConfigError, match="asks for 1048576 GPUs, more than 1024"):
        decide(Options(tmp_path), requirements.read(tmp_path), Image("x"), "gpu")


def test_a_folder_in_place_of_a_config_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m" / "config.pbtxt").mkdir(parents=True)
    with pytest.raises(ConfigError, match="it is not a file"):
        requirements.read(tmp_path)


def test_a_link_without_a_target_is_no_file_that_a_server_may_read(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "link").symlink_to("nothing")
    assert requirements.unreadable(tmp_path, 1000, 1000) == tmp_path / "link"


def test_without_a_repository_there_is_no_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to serve"):
        docker.command_line(deployment(None))
