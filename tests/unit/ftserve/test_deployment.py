"""How a repository is served, and what is refused before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ftbuild import triton
from ftbuild.config.schema import Config
from ftbuild.engine import daemon, gpu
from ftbuild.engine.gpu import Access, Gpu
from ftbuild.errors import ConfigError, FtbuildError, HostError
from ftbuild.features import LeftOut
from ftbuild.models.left_out import Needed
from ftbuild.sm import Sm
from ftserve import deployment, image_choice, requirements, resolve, several_nodes
from ftserve.deployment import Options, Ports
from ftserve.image_choice import Image, ImageChoice
from ftserve.requirements import Needs, Weights
from ftserve.targets import docker
from testing import foreign_weights

P100 = Gpu("P100", 6, 0, 16 * 2**30, "11.8")
V100 = Gpu("V100", 7, 0, 16 * 2**30, "11.8")
A100 = Gpu("A100", 8, 0, 80 * 2**30, "12.2")
A10 = Gpu("A10", 8, 6, 24 * 2**30, "12.2")
H100 = Gpu("H100", 9, 0, 80 * 2**30, "12.2")
MODELS = Path("/srv/models")
IMAGE = Image("triton_with_ft:22.12-sm80", "22.12", (Sm(80),), "ngc")
WEIGHTS = Weights("fastertransformer", "GPT", "fp16", False, 1, 1, 1, "fastertransformer/1/1-gpu", True, (1,))


def pbtxt(**parameters: str) -> str:
    written = {"tensor_para_size": "1", "pipeline_para_size": "1", "model_type": "GPT", **parameters}
    return 'backend: "fastertransformer"\n' + "".join(
        f'parameters {{ key: "{name}" value: {{ string_value: "{value}" }} }}\n'
        for name, value in written.items()
    )


@pytest.fixture
def repository(tmp_path: Path) -> Callable[..., Path]:
    """A repository with an FT model, weights for `split` GPUs, and an ensemble beside it."""

    def make(text: str, *split: int, extra: str = "") -> Path:
        model = tmp_path / "models" / "fastertransformer"
        for count in split:
            (model / "1" / f"{count}-gpu").mkdir(parents=True)
            (model / "1" / f"{count}-gpu" / "config.ini").touch()
        model.mkdir(parents=True, exist_ok=True)
        (model / "config.pbtxt").write_text(text + extra)
        (tmp_path / "models" / "ensemble").mkdir()
        (tmp_path / "models" / "ensemble" / "config.pbtxt").write_text('platform: "ensemble"\n')
        return tmp_path / "models"

    return make


def access(*gpus: Gpu) -> Access:
    return Access("gpus", gpus)


def decide(
    *gpus: Gpu,
    weights: Weights = WEIGHTS,
    image: Image = IMAGE,
    options: Options | None = None,
    device: str = "gpu",
) -> deployment.Deployment:
    asked = options or Options(MODELS, tuple(range(len(gpus))) or None)
    wanted = Needs(("fastertransformer",), (weights,))
    return deployment.decide(asked, wanted, image, device, access(*gpus) if gpus else None)


def refused(kind: type[FtbuildError], match: str, *gpus: Gpu, **changes: object) -> str:
    """The hint of the refusal."""
    with pytest.raises(kind, match=match) as caught:
        decide(*gpus, **changes)  # type: ignore[arg-type]
    assert caught.value.hint
    return caught.value.hint


def test_a_repository_says_what_it_needs(repository: Callable[..., Path]) -> None:
    text = pbtxt(tensor_para_size="2", pipeline_para_size="2", data_type="bf16", int8_mode="1")
    found = requirements.read(repository(text, 2, extra="instance_group { count: 3 kind: KIND_CPU }\n"))
    assert found.models == ("ensemble", "fastertransformer")
    assert found.gpus == 4
    assert found.weights == (
        Weights("fastertransformer", "GPT", "bf16", True, 2, 2, 3, "fastertransformer/1/2-gpu", True, (2,)),
    )


def test_the_model_that_needs_most_gpus_decides(repository: Callable[..., Path]) -> None:
    folder = repository(pbtxt(), 1)
    (folder / "large").mkdir()
    (folder / "large/config.pbtxt").write_text(pbtxt(tensor_para_size="4"))
    assert requirements.read(folder).gpus == 4


def test_weights_are_where_the_container_sees_them(repository: Callable[..., Path]) -> None:
    folder = repository(pbtxt(model_checkpoint_path="/models/fastertransformer/1/1-gpu"), 1)
    assert requirements.read(folder).weights[0].exists
    (folder / "fastertransformer/config.pbtxt").write_text(pbtxt(model_checkpoint_path="/fsx/model/1-gpu"))
    with pytest.raises(ConfigError, match="/fsx/model/1-gpu, which the container does not have") as caught:
        requirements.read(folder)
    assert f"invoke model-repo --adopt {folder}/fastertransformer " in str(caught.value)


def test_release_1_1_says_is_half_in_place_of_a_data_type(repository: Callable[..., Path]) -> None:
    assert requirements.read(repository(pbtxt(is_half="1"), 1)).weights[0].data_type == "fp16"


def test_the_newest_version_is_served(repository: Callable[..., Path]) -> None:
    folder = repository(pbtxt(), 1)
    for version in ("2", "10"):  # as text, 2 comes after 10
        (folder / "fastertransformer" / version / "1-gpu").mkdir(parents=True)
    assert requirements.read(folder).weights[0].folder == "fastertransformer/10/1-gpu"


def test_a_folder_that_is_no_repository_is_refused(repository: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        requirements.read(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="no model in the repository"):
        requirements.read(tmp_path)
    folder = repository(pbtxt(), 1)
    with pytest.raises(ConfigError, match="a model, not a model repository") as caught:
        requirements.read(folder / "fastertransformer")
    assert str(folder) in (caught.value.hint or "")
    (folder / "fastertransformer/config.pbtxt").write_text(pbtxt(tensor_para_size="two"))
    with pytest.raises(ConfigError, match="tensor_para_size is 'two'"):
        requirements.read(folder)


def test_files_that_the_image_user_cannot_read_are_found(repository: Callable[..., Path]) -> None:
    folder = repository(pbtxt(), 1)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    stranger = (folder.stat().st_uid + 4711, folder.stat().st_gid + 4711)
    assert requirements.unreadable(folder, *stranger) is None
    closed = folder / "fastertransformer/1/1-gpu/config.ini"
    closed.chmod(0o640)
    assert requirements.unreadable(folder, *stranger) == closed
    assert requirements.unreadable(folder, 0, 0) is None
    assert requirements.unreadable(folder, stranger[0], closed.stat().st_gid) is None
    closed.parent.chmod(0o744)  # listing a folder is not enough to open what is in it
    assert requirements.unreadable(folder, *stranger) == closed.parent
    folder.chmod(0o700)
    assert requirements.unreadable(folder, *stranger) == folder


def test_gpus_are_those_that_the_repository_needs_unless_told() -> None:
    weights = replace(WEIGHTS, tensor_para=2)
    assert decide(weights=weights, options=Options(MODELS)).gpus == (0, 1)
    assert decide(weights=weights, options=Options(MODELS, (2, 3))).gpus == (2, 3)


def test_the_cpu_stack_gets_no_gpu_and_no_limits() -> None:
    found = decide(options=Options(MODELS), device="cpu")
    assert (found.gpus, dict(found.environment), dict(found.limits)) == ((), {}, {})
    refused(ConfigError, "computes on the CPU", options=Options(MODELS, (0,)), device="cpu")


def test_a_deployment_has_upstreams_command_and_settings() -> None:
    found = decide(A100)
    assert found.command == triton.COMMAND
    assert found.limits == triton.LIMITS
    assert found.environment == {"NCCL_LAUNCH_MODE": "GROUP"}
    assert found.shared_memory == 2**30


@pytest.mark.parametrize(
    ("tensor_para", "pipeline_para", "mode"),
    [(1, 1, "GROUP"), (8, 1, "GROUP"), (4, 2, "GROUP"), (1, 3, "PARALLEL"), (2, 4, "PARALLEL")],
)
def test_more_than_two_stages_in_a_process_do_not_wait_for_each_others_launches(
    tensor_para: int, pipeline_para: int, mode: str
) -> None:
    """Ranks that launch alone must have all kernels loaded."""
    found = decide(weights=replace(WEIGHTS, tensor_para=tensor_para, pipeline_para=pipeline_para))
    assert found.environment["NCCL_LAUNCH_MODE"] == mode
    assert found.environment.get("CUDA_MODULE_LOADING") == {"GROUP": None, "PARALLEL": "EAGER"}[mode]


@pytest.mark.parametrize(
    ("tensor_para", "pipeline_para", "gpus", "stages"),
    [
        (1, 1, 1, 1),
        (2, 4, 8, 4),  # one node
        (2, 4, 4, 2),  # two nodes
        (8, 2, 8, 1),
        (16, 2, 8, 1),  # a stage over two nodes
        (1, 2, 4, 2),  # two instances
    ],
)
def test_the_stages_of_a_process_follow_from_its_gpus(
    tensor_para: int, pipeline_para: int, gpus: int, stages: int
) -> None:
    assert replace(WEIGHTS, tensor_para=tensor_para, pipeline_para=pipeline_para).stages(gpus) == stages


def test_weights_for_four_gpus_on_one_are_refused() -> None:
    hint = refused(ConfigError, r"weights for 4 GPUs \(.* 4 x .* 1\) on 1", A100, weights=four())
    assert "--gpus 0,1,2,3" in hint
    assert "convert --gpus 1" in hint


def four(instances: int = WEIGHTS.instances) -> Weights:
    return replace(WEIGHTS, tensor_para=4, instances=instances)


def test_the_backend_uses_every_gpu_that_it_sees() -> None:
    two = [A100] * 2
    refused(ConfigError, "2 GPUs for weights that need 1", *two)
    assert decide(*two, weights=replace(WEIGHTS, instances=2)).gpus == (0, 1)
    refused(ConfigError, "6 GPUs for weights that need 4", *[A100] * 6, weights=four(instances=2))
    assert not WEIGHTS.fits(0)


def test_weights_that_are_split_otherwise_or_absent_are_refused() -> None:
    hint = refused(
        ConfigError,
        "config.pbtxt has tensor_para_size 1, the weights are split for 2, 4",
        weights=replace(WEIGHTS, exists=False, split=(2, 4)),
    )
    assert "model-repo --gpus 2" in hint
    refused(ConfigError, "the weights are missing", weights=replace(WEIGHTS, exists=False, split=()))


def test_the_sample_needs_no_weights_but_no_wrong_ones_either() -> None:
    options = Options(MODELS)
    assert decide(weights=replace(WEIGHTS, exists=False, split=()), options=options, device="cpu")
    refused(
        ConfigError,
        "split for 2",
        weights=replace(WEIGHTS, exists=False, split=(2,)),
        options=options,
        device="cpu",
    )


@pytest.mark.parametrize("found", [A100, A10])
def test_machine_code_runs_on_the_same_major_version(found: Gpu) -> None:
    assert decide(found).image == IMAGE.name


def test_an_image_for_another_sm_is_refused() -> None:
    hint = refused(
        HostError, r"machine code for sm_80 only, the GPU is H100 \(compute capability 9.0\)", H100
    )
    assert "invoke build --sm 90" in hint
    refused(HostError, "the GPU is V100", A100, V100, weights=replace(WEIGHTS, instances=2))
    assert decide(H100, image=Image("somebody/triton_with_ft:22.06"))


@pytest.mark.parametrize(
    ("changes", "found", "match"),
    [
        ({"data_type": "fp16"}, replace(P100, major=5, minor=2), "fp16 needs .* 6.0 and later"),
        ({"data_type": "bf16"}, V100, "bf16 needs .* 8.0 and later"),
        ({"int8": True}, P100, "int8_mode needs .* 7.0 and later"),
    ],
)
def test_a_data_type_that_the_gpu_lacks_is_refused(
    changes: dict[str, object], found: Gpu, match: str
) -> None:
    weights = replace(WEIGHTS, **changes)  # type: ignore[arg-type]
    refused(HostError, match, found, weights=weights, image=Image("any"))


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"data_type": "fp16"}, P100),
        ({"data_type": "bf16"}, A100),
        ({"data_type": "fp32"}, replace(P100, major=5, minor=2)),
        ({"int8": True}, V100),
        ({"int8": True}, A10),
        ({"int8": True}, H100),
    ],
)
def test_a_data_type_that_the_gpu_has_is_served(changes: dict[str, object], found: Gpu) -> None:
    assert decide(found, weights=replace(WEIGHTS, **changes), image=Image("any"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lacks", "changes", "match"),
    [
        (LeftOut(("int8",)), {"int8": True}, "without int8"),
        (LeftOut(("experts",)), {"experts": True}, "without experts"),
        (LeftOut((), (64, 128)), {"head_size": 80}, "heads of 64 and 128, and the model has heads of 80"),
    ],
)
def test_a_model_that_the_image_is_built_without_is_refused_by_name(
    lacks: LeftOut, changes: dict[str, object], match: str
) -> None:
    lean, weights = replace(IMAGE, left_out=lacks), replace(WEIGHTS, **changes)  # type: ignore[arg-type]
    refused(ConfigError, match, A100, weights=weights, image=lean)
    assert decide(A100, image=lean)
    assert decide(A100, weights=weights)


def test_weights_say_what_they_need(repository: Callable[..., Path]) -> None:
    folder = repository(pbtxt(int8_mode="1"), 1)
    ini = "[gpt]\nsize_per_head=80\n[structure]\nmoe_layers=[1]\n"
    (folder / "fastertransformer/1/1-gpu/config.ini").write_text(ini)
    assert requirements.read(folder).weights[0].needed == Needed(int8=True, experts=True, head_size=80)


def test_a_repository_with_a_data_type_that_the_backend_lacks_is_refused(
    repository: Callable[..., Path],
) -> None:
    folder = repository(pbtxt(model_type="GPT-NeoX", data_type="bf16"), 1)
    with pytest.raises(ConfigError, match="GPT-NeoX has no bf16"):
        deployment.decide(Options(folder), requirements.read(folder), IMAGE, "gpu")
    (folder / "fastertransformer/config.pbtxt").write_text(pbtxt(model_type="GPT", data_type="bf16"))
    assert deployment.decide(Options(folder), requirements.read(folder), IMAGE, "gpu")


def test_bf16_for_gpt_neox_is_refused_since_it_would_be_fp32() -> None:
    weights = replace(WEIGHTS, model_type="GPT-NeoX", data_type="bf16")
    assert decide(A100, weights=weights)
    unpatched = replace(weights, data_types=("fp16", "fp32"))
    assert "fp16 or fp32" in refused(ConfigError, "GPT-NeoX has no bf16", A100, weights=unpatched)


def test_shared_memory_must_do_for_nccl() -> None:
    small = Options(MODELS, (0, 1), shared_memory=deployment.size("512m"))
    weights = replace(WEIGHTS, tensor_para=2)
    assert "--shm 1024m" in refused(ConfigError, "512 MiB .* NCCL on 2 GPUs", weights=weights, options=small)
    assert decide(options=replace(small, gpus=(0,))).shared_mebibytes == 512
    refused(ConfigError, "1 MiB", options=Options(MODELS, (0,), shared_memory=2**20))


@pytest.mark.parametrize(("text", "mebibytes"), [("1g", 1024), ("4GB", 4096), ("512m", 512), ("64MiB", 64)])
def test_sizes_are_read_as_docker_reads_them(text: str, mebibytes: int) -> None:
    assert deployment.size(text) == mebibytes * 2**20


@pytest.mark.parametrize("text", ["", "1", "g", "1.5g", "-1g", "1t"])
def test_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a size"):
        deployment.size(text)


def test_indices_are_read_as_docker_writes_them() -> None:
    assert deployment.gpu_indices("0, 2") == (0, 2)
    assert deployment.gpu_indices("device=1") == (1,)
    assert deployment.gpu_indices("") is None
    for text in ("all", "0,0", "0,", "-1"):
        with pytest.raises(ConfigError, match="not a list of GPU indices"):
            deployment.gpu_indices(text)


def test_ports_must_be_ports_and_differ() -> None:
    with pytest.raises(ConfigError, match="70000 is not a port"):
        Ports(http=70000)
    with pytest.raises(ConfigError, match="different ports, not 8001, 8001, 8002"):
        Ports(http=8001)


@pytest.mark.parametrize("name", ["GPT", "-gpt", "0gpt", "gpt_j", "a" * 64, ""])
def test_a_name_that_some_platform_refuses_is_refused(name: str) -> None:
    refused(ConfigError, "not a name that every platform takes", options=Options(MODELS, name=name))


def test_docker_run_says_the_same_as_the_engine_is_asked() -> None:
    weights = replace(WEIGHTS, tensor_para=2)
    options = Options(Path("/srv/my models"), (2, 3), Ports(18000, 18001, 18002), 2**31, "gpt")
    assert docker.command_line(decide(weights=weights, options=options)) == (
        "docker run --detach --name=gpt --label=io.ftbuild.role=serve "
        "--read-only --tmpfs=/tmp:size=256m --cap-drop=ALL --security-opt=no-new-privileges "
        "--pids-limit=4096 --memory=14336m "
        "'--mount=type=bind,source=/srv/my models,target=/models,readonly' '--gpus=\"device=2,3\"' "
        "--shm-size=2048m --ulimit=memlock=-1:-1 --ulimit=stack=67108864:67108864 "
        "--publish=127.0.0.1:18000:8000 --publish=127.0.0.1:18001:8001 --publish=127.0.0.1:18002:8002 "
        "--env=NCCL_LAUNCH_MODE=GROUP triton_with_ft:22.12-sm80 "
        "mpirun -n 1 --bind-to none --allow-run-as-root tritonserver --model-repository=/models"
    )


def test_a_cdi_engine_is_asked_by_device_names() -> None:
    found = replace(decide(A100), access="cdi", gpus=(1,))
    assert "--device=nvidia.com/gpu=1" in docker.command_line(found)
    assert "--gpus" not in docker.command_line(found)


def with_weights(repository: Callable[..., Path], gpus: int) -> Path:
    folder = repository(pbtxt(tensor_para_size=str(gpus)))
    foreign_weights.model("gpt", gpus).write(folder / "fastertransformer" / "1")
    return folder


@pytest.mark.parametrize("name", ["model.wpe.bin", "model.layers.1.attention.dense.weight.1.bin"])
def test_nothing_is_written_down_for_weights_that_do_not_fit(
    name: str, config: Config, repository: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent() -> None:
        raise HostError("the Docker Engine does not answer")

    monkeypatch.setattr(daemon, "connect", silent)
    folder = with_weights(repository, 2)
    choice, options = ImageChoice(image="registry/x:1"), Options(folder)
    place = folder / "fastertransformer/1/2-gpu"
    (place / name).write_bytes(b"1234")
    with pytest.raises(ConfigError, match=f"fastertransformer: .*\n    {name} has 4 bytes") as refused:
        resolve.to_write(config, choice, options)
    assert refused.value.where == str(place)
    (place / name).unlink()
    with pytest.raises(ConfigError, match=f"{name} is missing"):
        resolve.to_write(config, choice, options)


def test_weights_are_compared_as_the_backend_would_load_them(
    config: Config, repository: Callable[..., Path]
) -> None:
    """A model of no type counts as GPT."""
    folder = with_weights(repository, 2)
    file = folder / "fastertransformer/config.pbtxt"
    for text in (pbtxt(tensor_para_size="2"), pbtxt(tensor_para_size="2", model_type="")):
        file.write_text(text)
        assert requirements.read(folder, config.models).weights[0].defects == ()
    (folder / "fastertransformer/1/2-gpu/model.wpe.bin").unlink()
    (defect,) = requirements.read(folder, config.models).weights[0].defects
    assert "model.wpe.bin is missing" in defect


def test_other_models_and_unknown_kinds_are_served_as_they_are(
    config: Config, repository: Callable[..., Path]
) -> None:
    folder = repository(pbtxt(model_type="Swin"), 1)
    assert requirements.read(folder, config.models).weights[0].defects == ()
    (folder / "fastertransformer/config.pbtxt").write_text('backend: "onnxruntime"\n')
    assert requirements.read(folder, config.models).weights == ()


def test_writing_down_a_named_image_needs_no_engine(
    config: Config, repository: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent() -> None:
        raise HostError("the Docker Engine does not answer")

    monkeypatch.setattr(daemon, "connect", silent)
    options = Options(with_weights(repository, 2))
    found = resolve.to_write(config, ImageChoice(image="registry/x:1"), options)
    assert (found.image, found.gpus) == ("registry/x:1", (0, 1))
    assert resolve.to_write(config, ImageChoice(image="x"), Options(None, (0, 1, 2, 3))).gpus == (0, 1, 2, 3)
    with pytest.raises(HostError, match="the Docker Engine does not answer"):
        resolve.to_write(config, ImageChoice(), options)


def test_without_a_repository_there_is_nothing_to_serve(config: Config) -> None:
    engine: Any = None  # which is not asked
    with pytest.raises(ConfigError, match="nothing to serve"):
        resolve.to_serve(engine, config, ImageChoice(image="x"), Options(None))


@pytest.mark.parametrize("here", [True, False])
def test_an_image_is_looked_for_with_the_gpus_that_the_model_needs(
    config: Config, repository: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    asked: list[tuple[object, bool]] = []
    engine: Any = object()

    def find(client: object, config: object, choice: object, indices: object, *, here: bool) -> Any:
        asked.append((indices, here))
        return IMAGE, access(A100, A100)

    monkeypatch.setattr(image_choice, "find", find)
    monkeypatch.setattr(daemon, "connect", lambda: engine)
    options = Options(with_weights(repository, 2))
    if here:
        served = resolve.to_serve(engine, config, ImageChoice(), options)
        assert served.image == IMAGE
        found = served.deployment
    else:
        found = resolve.to_write(config, ImageChoice(), options)
    assert (found.image, found.gpus) == (IMAGE.name, (0, 1))
    assert asked == [((0, 1), here)]
    with pytest.raises(ConfigError, match="Not An Image"):
        resolve.to_serve(engine, config, ImageChoice(image="Not An Image"), options)
    assert len(asked) == 1


def test_gpus_are_asked_for_by_index() -> None:
    assert gpu.requests("gpus", (0, 3))[0]["DeviceIDs"] == ["0", "3"]
    assert gpu.requests("cdi", (3,))[0]["DeviceIDs"] == ["nvidia.com/gpu=3"]
    assert gpu.requests("gpus")[0]["Count"] == -1


@pytest.mark.parametrize(
    ("listen", "everywhere", "here_only"),
    [
        ("0.0.0.0", True, False),
        ("::", True, False),
        ("127.0.0.1", False, True),
        ("::1", False, True),
        ("10.0.0.1", False, False),
    ],
)
def test_ports_say_who_can_connect(listen: str, everywhere: bool, here_only: bool) -> None:
    ports = Ports(listen=listen)
    assert (ports.listens_everywhere, ports.listens_here_only) == (everywhere, here_only)


@pytest.mark.parametrize("style", ["gpus", "cdi"])
def test_a_deployment_gives_gpus_as_this_engine_does(style: str) -> None:
    wanted = Needs(("fastertransformer",), (WEIGHTS,))
    given = replace(access(A100), style=style)
    assert deployment.decide(Options(MODELS, (0,)), wanted, IMAGE, "gpu", given).access == style


def test_gpus_of_an_engine_that_nobody_has_asked_are_given_in_dockers_way() -> None:
    wanted = Needs(("fastertransformer",), (WEIGHTS,))
    assert deployment.decide(Options(MODELS, (0,)), wanted, IMAGE, "gpu").access == "gpus"


@pytest.mark.parametrize("base", sorted(several_nodes.OTHER_DAEMON))
def test_one_node_is_served_by_any_open_mpi(base: str) -> None:
    wanted, image = Needs(("fastertransformer",), (WEIGHTS,)), replace(IMAGE, base=base)
    assert deployment.decide(Options(MODELS, (0,)), wanted, image, "gpu").nodes == 1
