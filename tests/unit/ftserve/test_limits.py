"""Where what can be served ends: the last value that is taken, the first that is refused, what is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ftbuild.errors import ConfigError, FtbuildError, HostError
from ftbuild.models.config_ini import MAX_GPUS
from ftbuild.sm import Sm
from ftbuild.text.units import GIB, MIB
from ftserve import deployment, front_options, requirements
from ftserve.deployment import Options, Ports
from ftserve.front_options import FrontOptions
from ftserve.image_choice import Image
from ftserve.requirements import Needs, Weights
from ftserve.targets import kserve, kubernetes
from ftserve.targets.kubernetes import Cluster
from tests.unit.ftserve.test_deployment import (  # noqa: F401  repository is a fixture
    A100,
    H100,
    IMAGE,
    MODELS,
    WEIGHTS,
    access,
    pbtxt,
    repository,
)

Taking = Callable[[int], object]


def decided(options: Options, *weights: Weights, device: str = "gpu") -> deployment.Deployment:
    needs = Needs(tuple(each.model for each in weights), weights)
    return deployment.decide(options, needs, IMAGE, device)


def asking_for(gpus: int) -> object:
    return deployment.chosen_gpus(
        Options(MODELS), Needs(weights=(replace(WEIGHTS, tensor_para=gpus),)), "gpu"
    )


def shared(mebibytes: int, gpus: int) -> object:
    split = replace(WEIGHTS, tensor_para=gpus)
    return decided(Options(MODELS, shared_memory=mebibytes * MIB), split)


@pytest.mark.parametrize(
    ("take", "last", "refused", "message", "hint"),
    [
        (lambda port: Ports(http=port), 65535, 65536, "65536 is not a port", "1 to 65535"),
        (lambda port: Ports(http=port), 1, 0, "0 is not a port", "1 to 65535"),
        (asking_for, 1024, 1025, "config.pbtxt asks for 1025 GPUs, more than 1024", "tensor_para_size x "),
        (
            lambda size: shared(size, 1),
            64,
            63,
            "63 MiB of shared memory is too small for the server",
            "--shm 64m",
        ),
        (
            lambda size: shared(size, 2),
            1024,
            1023,
            "1023 MiB of shared memory is too small for NCCL on 2 GPUs",
            "--shm 1024m or more",
        ),
        (
            lambda size: decided(Options(MODELS, memory=size * MIB), WEIGHTS),
            2048,
            2047,
            "2047 MiB of memory is too small: 1024 are shared",
            "--memory 2048m or more",
        ),
        (
            lambda length: decided(Options(MODELS, name="a" * length)),
            63,
            64,
            "not a name that every",
            "at most 63",
        ),
        (
            lambda length: Cluster(claim="a" * length),
            253,
            254,
            "is not the name of a claim",
            "lower-case letters",
        ),
        (lambda length: Cluster(secret="a" * length), 253, 254, "is not the name of a Secret", "RFC 1123"),
        (lambda count: Cluster(replicas=count), 1, 0, "must be at least 1, not 0", "check --replicas"),
        (
            lambda most: Cluster(replicas=3, max_replicas=most),
            3,
            2,
            "--max-replicas 2 is less than --replicas 3",
            "an autoscaler starts from --replicas",
        ),
        (
            lambda most: kserve.Service("pvc://a", 3, most),
            3,
            2,
            "no number of pods is from 3 to 2",
            "--max-replicas not below it",
        ),
        (
            lambda length: front_options.find(FrontOptions("x", "m" * length), "gpt", None, Needs()),
            200,
            201,
            "is not a name",
            "printable characters",
        ),
        (
            lambda number: deployment.gpu_indices(f"{number}"),
            9999,
            10000,
            "not a list of GPU indices",
            "--gpus 0,1",
        ),
    ],
)
def test_the_last_value_is_taken_and_the_next_one_refused(
    take: Taking, last: int, refused: int, message: str, hint: str
) -> None:
    assert take(last)
    with pytest.raises(ConfigError) as caught:
        take(refused)
    assert message in caught.value.what
    assert hint in (caught.value.hint or "")


LONG = "y" * 300


@pytest.mark.parametrize(
    "refuse",
    [
        lambda: Ports(listen=LONG),
        lambda: deployment.size(LONG),
        lambda: deployment.gpu_indices(LONG),
        lambda: decided(Options(MODELS, name=LONG)),
        lambda: Cluster(monitoring=f"{LONG}-"),
        lambda: kserve.Service(LONG),
        lambda: front_options.find(FrontOptions("x", LONG), "gpt", None, Needs()),
    ],
)
def test_a_long_text_is_quoted_by_its_beginning(refuse: Callable[[], object]) -> None:
    with pytest.raises(ConfigError) as caught:
        refuse()
    assert f"'{LONG[:80]}'" in caught.value.what


@pytest.mark.parametrize(
    ("text", "mebibytes"),
    [(" 1g ", 1024), ("1GiB", 1024), ("1gb", 1024), ("999999m", 999999), ("2Mi", 2), ("3mb", 3)],
)
def test_sizes_have_the_usual_units(text: str, mebibytes: int) -> None:
    assert deployment.size(text) == mebibytes * MIB


def test_defaults_are_those_of_the_documentation() -> None:
    options = Options(MODELS)
    assert (options.ports.http, options.ports.grpc, options.ports.metrics) == (8000, 8001, 8002)
    assert (options.ports.listen, options.ports.openai) == ("127.0.0.1", None)
    assert (options.shared_memory, options.name, options.nodes) == (GIB, "triton-ft", 1)
    assert (Cluster().replicas, Cluster().pending, Cluster().isolated) == (1, 8, False)
    service = kserve.Service("pvc://a")
    assert (service.min_replicas, service.max_replicas) == (1, 1)
    assert (Needs().gpus, Needs().stages(4), Needs().size) == (1, 1, 0)


@pytest.mark.parametrize(("listen", "host"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
def test_an_address_stands_before_its_port_as_in_a_url(listen: str, host: str) -> None:
    assert Ports(listen=listen).host == host


def test_ports_are_checked_with_the_fronts_and_all_are_named() -> None:
    with pytest.raises(ConfigError, match="not 8000, 8001, 8002, 8002") as caught:
        Ports(openai=8002)
    assert caught.value.hint == "--http-port, --grpc-port, --metrics-port, --openai-port"
    assert list(Ports(openai=9003).published())[-1] == ("openai", 9003, 8003)


def test_a_path_with_control_characters_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a path that every platform takes"):
        decided(Options(Path("/srv/mod\nels")))


def test_the_memory_is_rounded_down_to_what_platforms_write() -> None:
    needs = Needs(("ensemble",), size=5 * MIB + 4711)
    found = deployment.decide(Options(MODELS), needs, IMAGE, "gpu")
    assert found.memory == 5 * MIB + GIB + 4 * GIB + 4 * GIB
    assert found.memory_mebibytes == 5 + 9 * 1024


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_weights_that_are_not_there_are_looked_for_where_the_user_has_them(device: str) -> None:
    named = replace(
        WEIGHTS, exists=False, split=(2, 4), named="default_model_filename theirs", folder="ft/1/theirs"
    )
    with pytest.raises(ConfigError) as caught:
        decided(Options(MODELS), named, device=device)
    assert caught.value.what == (
        "fastertransformer: config.pbtxt has default_model_filename theirs, and there is no such folder, "
        "only 2-gpu, 4-gpu"
    )
    assert caught.value.where == "/srv/models/ft/1/theirs"
    assert (caught.value.hint or "").startswith("invoke model-repo --adopt /srv/models/fastertransformer ")
    with pytest.raises(ConfigError) as caught:
        decided(Options(None), replace(named, split=(2,), named=None))
    assert caught.value.where == "/models/ft/1/theirs"
    assert caught.value.hint == (
        "invoke model-repo --gpus 2, or for 1: invoke convert --gpus 1, then invoke model-repo"
    )


def test_weights_of_which_there_is_nothing_are_to_be_converted() -> None:
    gone = replace(WEIGHTS, exists=False, split=())
    for missing, message in [
        (gone, "fastertransformer: the weights are missing"),
        (
            replace(gone, named="default_model_filename theirs"),
            "fastertransformer: config.pbtxt has default_model_filename theirs, and there is no such folder",
        ),
    ]:
        with pytest.raises(ConfigError) as caught:
            decided(Options(MODELS), missing)
        assert caught.value.what == message
        assert caught.value.hint == "invoke convert --gpus 1, then invoke model-repo"


def test_weights_that_contradict_their_description_are_refused_with_all_of_it() -> None:
    spoilt = replace(WEIGHTS, defects=("a.bin has 4 bytes, not 8", "b.bin is missing"))
    for models, root in [(MODELS, "/srv/models"), (None, "/models")]:
        with pytest.raises(ConfigError) as caught:
            decided(Options(models, (0,)), spoilt)
        assert caught.value.what.splitlines() == [
            "fastertransformer: config.ini and the weights do not fit:",
            "    a.bin has 4 bytes, not 8",
            "    b.bin is missing",
        ]
        assert caught.value.where == f"{root}/fastertransformer/1/1-gpu"
        assert f"--adopt {root}/fastertransformer " in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("weights", "gpus", "message", "hint"),
    [
        (
            replace(WEIGHTS, tensor_para=2, pipeline_para=2),
            2,
            "fastertransformer: weights for 4 GPUs (tensor_para_size 2 x pipeline_para_size 2) on 2",
            "--gpus 0,1,2,3, or invoke convert --gpus 2 and invoke model-repo",
        ),
        (
            replace(WEIGHTS, tensor_para=2),
            4,
            "fastertransformer: 4 GPUs for weights that need 2 (tensor_para_size 2 x pipeline_para_size 1): "
            "the backend uses all visible GPUs, and 1 x 2 does not cover them evenly",
            "choose 2 GPUs, and start a second server on the others",
        ),
    ],
)
def test_a_number_of_gpus_that_does_not_fit_names_one_that_does(
    weights: Weights, gpus: int, message: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        decided(Options(MODELS, tuple(range(gpus))), weights)
    assert (caught.value.what, caught.value.hint) == (message, hint)


def test_an_image_without_machine_code_names_what_it_has_and_what_to_build() -> None:
    image = Image("x:22.12-sm70_80", "22.12", (Sm(70), Sm(80)), "ngc")
    needs = Needs(("fastertransformer",), (WEIGHTS,))
    with pytest.raises(HostError) as caught:
        deployment.decide(Options(MODELS, (0,)), needs, image, "gpu", access(H100))
    assert caught.value.what.startswith(
        "x:22.12-sm70_80 has machine code for sm_70, sm_80 only, the GPU is H100"
    )
    assert caught.value.hint == "invoke build --sm 90, or leave --image and --sm out"


def read(folder: Path, text: str) -> Weights:
    (folder / "fastertransformer/config.pbtxt").write_text(text)
    (weights,) = requirements.read(folder).weights
    return weights


@pytest.mark.parametrize(
    ("name", "last", "refused"),
    [
        ("max_request_seconds", 10**9, 10**9 + 1),
        ("max_request_seconds", 0, -1),
        ("tensor_para_size", 1, 0),
        ("tensor_para_size", MAX_GPUS, MAX_GPUS + 1),
        ("pipeline_para_size", 1, 0),
        ("pipeline_para_size", MAX_GPUS, MAX_GPUS + 1),
        ("int8_mode", 0, -1),
        ("int8_mode", MAX_GPUS, MAX_GPUS + 1),
    ],
)
def test_the_numbers_of_a_configuration_have_limits(
    repository: Callable[..., Path],  # noqa: F811
    name: str,
    last: int,
    refused: int,
) -> None:
    folder = repository(pbtxt(), 1)
    assert read(folder, pbtxt(**{name: str(last)}))
    with pytest.raises(ConfigError, match=f"{name} is '{refused}', not a number from ") as caught:
        read(folder, pbtxt(**{name: str(refused)}))
    assert caught.value.where == str(folder / "fastertransformer/config.pbtxt")
    assert caught.value.hint


def test_what_a_configuration_leaves_out_is_what_the_backend_takes(
    repository: Callable[..., Path],  # noqa: F811
) -> None:
    found = read(repository("", 1), 'backend: "fastertransformer"\n')
    assert (found.tensor_para, found.pipeline_para, found.instances, found.int8) == (1, 1, 1, False)
    assert (found.model_type, found.data_type, found.request_seconds) == ("", "fp32", 600)
    assert (found.named, found.gpus) == (None, 1)


def test_instances_are_counted_over_all_groups(repository: Callable[..., Path]) -> None:  # noqa: F811
    groups = "instance_group { count: 2 kind: KIND_CPU }\ninstance_group { kind: KIND_CPU }\n"
    assert read(repository("", 1), pbtxt() + groups).instances == 3


def test_weights_for_other_numbers_of_gpus_are_folders_of_their_name(
    repository: Callable[..., Path],  # noqa: F811
) -> None:
    folder = repository(pbtxt(), 1, 4)
    version = folder / "fastertransformer/1"
    for name in ("0-gpu", "10000-gpu", "x2-gpu", "2-gpus"):
        (version / name).mkdir()
    (version / "8-gpu").touch()
    assert requirements.read(folder).weights[0].split == (1, 4)


CHECKPOINT = 'parameters {{ key: "model_checkpoint_path" value: {{ string_value: "{}" }} }}\n'


@pytest.mark.parametrize(
    ("text", "place", "named"),
    [
        ('default_model_filename: "theirs"\n', "fastertransformer/1/theirs", "default_model_filename theirs"),
        (
            'default_model_filename: "theirs/"\n',
            "fastertransformer/1/theirs",
            "default_model_filename theirs",
        ),
        ('default_model_filename: "1-gpu"\n', "fastertransformer/1/1-gpu", None),
        (
            CHECKPOINT.format("/models/fastertransformer/7/theirs"),
            "fastertransformer/7/theirs",
            "model_checkpoint_path /models/fastertransformer/7/theirs",
        ),
        (
            CHECKPOINT.format("/models/fastertransformer/1/1-gpu"),
            "fastertransformer/1/1-gpu",
            "model_checkpoint_path /models/fastertransformer/1/1-gpu",
        ),
    ],
)
def test_a_folder_of_another_name_is_where_the_configuration_says(
    repository: Callable[..., Path],  # noqa: F811
    text: str,
    place: str,
    named: str | None,
) -> None:
    found = read(repository("", 1), pbtxt() + text)
    assert (found.folder, found.named, found.exists) == (place, named, place.endswith("1-gpu"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'default_model_filename: "../x"\n',
            ("default_model_filename is ../x, which is not the name of a folder"),
        ),
        (
            pbtxt(model_checkpoint_path="/models/../x"),
            "model_checkpoint_path is /models/../x, which the container does not have: it sees the "
            "repository as /models",
        ),
        (
            pbtxt(model_checkpoint_path="models/x"),
            "model_checkpoint_path is models/x, which the container does not have: it sees the repository "
            "as /models",
        ),
    ],
)
def test_weights_outside_of_the_repository_are_refused(
    repository: Callable[..., Path],  # noqa: F811
    text: str,
    message: str,
) -> None:
    folder = repository("", 1)
    with pytest.raises(ConfigError) as caught:
        read(folder, text if text.startswith("backend") else pbtxt() + text)
    assert caught.value.what == message
    assert caught.value.where == str(folder / "fastertransformer/config.pbtxt")


def test_a_repository_has_a_bounded_number_of_models(tmp_path: Path) -> None:
    for number in range(500):
        (tmp_path / f"m{number}").mkdir()
        (tmp_path / f"m{number}/config.pbtxt").write_text('backend: "python"\n')
    assert len(requirements.read(tmp_path).models) == 500
    (tmp_path / "another").mkdir()
    (tmp_path / "another/config.pbtxt").touch()
    with pytest.raises(ConfigError, match="501 models in a repository, more than 500") as caught:
        requirements.read(tmp_path)
    assert caught.value.where == str(tmp_path)


@pytest.mark.parametrize(
    ("folder", "message"),
    [("nowhere", "does not exist"), (".", "no model in the repository: no <model>/config")],
)
def test_a_folder_that_is_no_repository_is_named(tmp_path: Path, folder: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        requirements.read(tmp_path / folder)
    assert (caught.value.where, caught.value.hint) == (str(tmp_path / folder), "invoke model-repo writes one")


def test_the_longest_request_is_that_of_the_slowest_model_unless_one_has_no_end() -> None:
    slow, quick, endless = (replace(WEIGHTS, request_seconds=seconds) for seconds in (700, 20, 0))
    assert Needs(weights=(quick, slow)).request_seconds == 700
    assert Needs(weights=(quick, endless)).request_seconds is None


def test_the_group_of_a_file_counts_before_all_others(repository: Callable[..., Path]) -> None:  # noqa: F811
    folder = repository(pbtxt(), 1)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    file = folder / "fastertransformer/config.pbtxt"
    uid, gid = file.stat().st_uid, file.stat().st_gid
    file.chmod(0o604)
    assert requirements.unreadable(folder, uid + 1, gid) == file
    assert requirements.unreadable(folder, uid + 1, gid + 1) is None
    file.chmod(0o044)
    assert requirements.unreadable(folder, uid, gid) == file


@pytest.mark.parametrize(
    ("refuse", "message"),
    [
        (
            lambda: decided(Options(MODELS), replace(WEIGHTS, data_type="bf16", data_types=("fp32",))),
            "has no bf16",
        ),
        (
            lambda: decided(Options(MODELS, (0,)), device="cpu"),
            "the backend of this stack computes on the CPU",
        ),
        (lambda: kubernetes.render(decided(Options(None)), Cluster()), "model repository"),
    ],
)
def test_every_refusal_says_what_to_do(refuse: Callable[[], object], message: str) -> None:
    with pytest.raises(FtbuildError, match=message) as caught:
        refuse()
    assert caught.value.hint


def test_a_gpu_that_is_here_and_fits_is_served_on() -> None:
    needs = Needs(("fastertransformer",), (WEIGHTS,))
    assert deployment.decide(Options(MODELS, (0,)), needs, IMAGE, "gpu", access(A100)).gpus == (0,)
