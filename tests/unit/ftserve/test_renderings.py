"""A deployment as Compose, Kubernetes and Apptainer files, each judged by its own tool or schema."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ftbuild import triton
from ftbuild.errors import BuildError, ConfigError, HostError
from ftserve import front_options, health, stored
from ftserve.deployment import Deployment, Options, Ports, decide
from ftserve.front_options import Front
from ftserve.image_choice import Image
from ftserve.requirements import Needs, Weights
from ftserve.targets import apptainer, compose, kubernetes
from ftserve.targets.kubernetes import Cluster
from testing import kubernetes_schemas, needs

SPLIT = Weights("fastertransformer", "GPT", "fp16", False, 2, 1, 1, "fastertransformer/1/2-gpu", True, (2,))
PORTS = Ports(18000, 18001, 18002)
BUCKET = stored.parse("s3://models/gptj", "registry.example.com/rclone:1.71")


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    models = tmp_path / "my $models"
    models.mkdir()
    options = Options(models, (2, 3), PORTS, 2**31, "gpt")
    return decide(options, Needs(("fastertransformer",), (SPLIT,)), Image("triton_with_ft:22.12-sm80"), "gpu")


@pytest.fixture
def on_cpu(deployment: Deployment) -> Deployment:
    return replace(deployment, gpus=(), environment={}, limits={})


@pytest.fixture
def without_repository(deployment: Deployment) -> Deployment:
    return replace(deployment, models=None)


def composed(wanted: Deployment, folder: Path) -> subprocess.CompletedProcess[str]:
    """What Docker Compose makes of a deployment's file, as JSON."""
    program = needs.compose()
    file = folder / "compose.yaml"
    file.write_text(compose.render(wanted))
    done = subprocess.run(
        [*program, "--file", str(file), "config", "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("kind", ["deployment", "on_cpu"])
def test_compose_itself_accepts_the_file(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    wanted: Deployment = request.getfixturevalue(kind)
    done = composed(wanted, tmp_path)
    assert not done.stderr
    service = json.loads(done.stdout)["services"][compose.SERVICE]
    assert service["command"] == list(triton.COMMAND)
    assert service["shm_size"] == str(2**31)
    # Compose doubles the dollar again in what it prints.
    assert service["volumes"][0]["source"].replace("$$", "$") == str(wanted.models)
    assert [(p["published"], p["target"]) for p in service["ports"]] == [
        ("18000", 8000),
        ("18001", 8001),
        ("18002", 8002),
    ]
    if kind == "deployment":
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert (device["driver"], device["device_ids"]) == ("nvidia", ["2", "3"])


def test_compose_restarts_the_server_and_asks_its_health(deployment: Deployment) -> None:
    written = yaml.safe_load(compose.render(deployment))
    service = written["services"][compose.SERVICE]
    assert "version" not in written
    assert service["restart"] == "unless-stopped"
    assert service["ulimits"] == triton.LIMITS
    assert service["volumes"][0]["read_only"]
    assert service["environment"] == {"NCCL_LAUNCH_MODE": "GROUP"}


def test_composes_server_has_no_rights_and_limits(deployment: Deployment) -> None:
    service = yaml.safe_load(compose.render(deployment))["services"][compose.SERVICE]
    assert (service["read_only"], service["tmpfs"]) == (True, ["/tmp:size=256m"])
    assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    assert (service["pids_limit"], service["mem_limit"]) == (4096, "14336m")
    unknown = yaml.safe_load(compose.render(replace(deployment, memory=None)))["services"][compose.SERVICE]
    assert "mem_limit" not in unknown


def test_compose_reserves_gpus_as_the_engine_hands_them_out(
    deployment: Deployment, on_cpu: Deployment
) -> None:
    def service(wanted: Deployment) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load(compose.render(wanted))["services"][compose.SERVICE]
        return found

    (device,) = service(replace(deployment, access="cdi"))["deploy"]["resources"]["reservations"]["devices"]
    assert device == {
        "driver": "cdi",
        "device_ids": ["nvidia.com/gpu=2", "nvidia.com/gpu=3"],
        "capabilities": ["gpu"],
    }
    assert "deploy" not in service(on_cpu)


@pytest.fixture
def with_front(deployment: Deployment, tmp_path: Path) -> Deployment:
    keys = tmp_path / "keys $1"
    front = Front("triton_with_ft:openai", "gpt", end_id=50256, context=1024, keys=keys)
    return replace(deployment, front=front, ports=replace(PORTS, openai=18003))


def test_composes_front_finds_the_server_and_sees_the_tokenizer_alone(
    with_front: Deployment, tmp_path: Path
) -> None:
    services = json.loads(composed(with_front, tmp_path).stdout)["services"]
    assert set(services) == {compose.SERVICE, compose.FRONT_SERVICE}
    assert [port["published"] for port in services[compose.SERVICE]["ports"]] == ["18000", "18001", "18002"]
    front = services[compose.FRONT_SERVICE]
    (port,) = front["ports"]
    assert (port["host_ip"], port["published"], port["target"]) == ("127.0.0.1", "18003", 8003)
    assert front["command"][3:] == [
        "--triton=triton:8001", "--tokenizer=/tokenizer", "--name=gpt", "--listen=0.0.0.0", "--port=8003",
        "--end-id=50256", "--context=1024", "--api-key-file=/keys/api-keys",
    ]  # fmt: skip
    assert [(volume["target"], volume["read_only"]) for volume in front["volumes"]] == [
        ("/tokenizer", True),
        ("/keys/api-keys", True),
    ]
    assert front["volumes"][0]["source"].endswith("$$models/preprocessing/1/tokenizer")
    assert (front["read_only"], front["cap_drop"]) == (True, ["ALL"])


def test_composes_front_is_confined_and_watched_like_the_server(with_front: Deployment) -> None:
    services = yaml.safe_load(compose.render(with_front))["services"]
    server, front = services[compose.SERVICE], services[compose.FRONT_SERVICE]
    same = ("restart", "read_only", "tmpfs", "cap_drop", "security_opt")
    assert {name: front[name] for name in same} == {name: server[name] for name in same}
    assert (server["healthcheck"].keys(), server["volumes"][0].keys()) == (
        front["healthcheck"].keys(),
        front["volumes"][0].keys(),
    )
    for name in ("interval", "retries", "start_period"):
        assert front["healthcheck"][name] == server["healthcheck"][name]
    assert all(volume["bind"] == {"create_host_path": False} for volume in front["volumes"])
    assert (front["pids_limit"], front["mem_limit"]) == (front_options.PROCESSES, "1024m")
    assert front["depends_on"] == [compose.SERVICE]
    *program, _, address = front["healthcheck"]["test"]
    assert (program, address) == (["CMD", "python3", "-c"], "http://127.0.0.1:8003/health")
    # Longer than each waits for its answers: the server 30 seconds, the front 50.
    for service in (server, front):
        assert int(service["stop_grace_period"].removesuffix("s")) > 50


def test_compose_needs_a_folder(without_repository: Deployment) -> None:
    with pytest.raises(ConfigError, match="mounts a folder"):
        compose.render(without_repository)


def documents(deployment: Deployment, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    pods, service, *_ = yaml.safe_load_all(kubernetes.render(deployment, Cluster(**options)))
    return pods, service


@pytest.mark.parametrize("claim", [None, "gptj-models"])
def test_kubernetes_schema_accepts_every_document(deployment: Deployment, claim: str | None) -> None:
    for document in yaml.safe_load_all(kubernetes.render(deployment, Cluster(claim=claim, replicas=2))):
        kubernetes_schemas.require_accepted(document)
    broken, _ = documents(deployment)
    broken["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"] = "8000"
    kubernetes_schemas.require_refused(broken)


def test_a_pod_gets_gpus_memory_probes_and_no_rights(deployment: Deployment) -> None:
    pods, _ = documents(deployment, replicas=3)
    pod = pods["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pods["spec"]["replicas"] == 3
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 2, "memory": "14336Mi"}}
    assert container["args"] == list(triton.COMMAND)
    assert container["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["runAsUser"] == 1000
    assert {"medium": "Memory", "sizeLimit": "2048Mi"} in [v.get("emptyDir") for v in pod["volumes"]]
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
    assert mounts == {"/models": True, "/dev/shm": False, "/tmp": False, "/probe": True}


@pytest.mark.parametrize("secret", [None, "keys"])
def test_a_pod_with_a_front_has_two_containers_and_one_network(
    with_front: Deployment, secret: str | None
) -> None:
    for document in yaml.safe_load_all(kubernetes.render(with_front, Cluster(secret=secret))):
        kubernetes_schemas.require_accepted(document)
    pods, service = documents(with_front, secret=secret)
    pod = pods["spec"]["template"]["spec"]
    server, front = pod["containers"]
    assert "openai" not in [port["name"] for port in server["ports"]]
    assert {"name": "openai", "port": 18003, "targetPort": "openai"} in service["spec"]["ports"]
    assert "--triton=127.0.0.1:8001" in front["args"]
    assert front["securityContext"] == server["securityContext"]
    assert front["volumeMounts"][0]["subPath"] == "preprocessing/1/tokenizer"
    # A file of this machine is not there; a Secret is.
    assert ("--api-key-file=/keys/api-keys" in front["args"]) == (secret is not None)
    secrets = [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume]
    assert secrets == ([secret] if secret else [])
    with pytest.raises(ConfigError, match="--openai-secret 'No Secret' is not the name"):
        kubernetes.render(with_front, Cluster(secret="No Secret"))


def test_no_variable_of_a_pod_stands_in_a_models_name(with_front: Deployment) -> None:
    """Kubernetes replaces $(NAME) in arguments, and takes $$ for a dollar (docs: define a command)."""
    assert with_front.front is not None
    name = "a $(KUBERNETES_SERVICE_HOST) $b $$c"
    pods, _ = documents(replace(with_front, front=replace(with_front.front, model=name)))
    _, front = pods["spec"]["template"]["spec"]["containers"]
    (argument,) = [word for word in front["args"] if word.startswith("--name=")]
    assert "$" not in argument.replace("$$", "")
    assert argument.replace("$$", "$") == f"--name={name}"


def test_a_service_finds_the_pods_and_their_ports(deployment: Deployment) -> None:
    pods, service = documents(deployment)
    assert service["spec"]["selector"] == pods["spec"]["selector"]["matchLabels"]
    assert service["spec"]["selector"] == pods["spec"]["template"]["metadata"]["labels"]
    named = {port["name"] for port in pods["spec"]["template"]["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} == named
    assert [port["port"] for port in service["spec"]["ports"]] == [18000, 18001, 18002]


def test_models_come_from_a_folder_or_a_claim(deployment: Deployment, without_repository: Deployment) -> None:
    def volume(wanted: Deployment, claim: str | None) -> Any:
        return documents(wanted, claim=claim)[0]["spec"]["template"]["spec"]["volumes"][0]

    assert volume(deployment, None)["hostPath"] == {"path": str(deployment.models), "type": "Directory"}
    assert volume(without_repository, "nfs")["persistentVolumeClaim"]["claimName"] == "nfs"
    with pytest.raises(ConfigError, match="needs the model repository"):
        kubernetes.render(without_repository)
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        Cluster(replicas=0)


PROGRAM = """\
#!/bin/sh
{ printf '%s\\n' "$0" "$@"; env | grep -E '^(APPTAINERENV|SINGULARITYENV)_' | sort; } > "$CALLED"
"""


def run_script(
    folder: Path,
    program: str,
    *arguments: str,
    script: str = apptainer.START,
    python: str | None = None,
    **environment: str,
) -> list[str]:
    """What a script runs in place of Apptainer, Singularity or Python, and the variables it passes on."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    texts = {program: PROGRAM, **({"python3": f"#!/bin/sh\n{python}\n"} if python else {})}
    for name, text in texts.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    called = folder / "called"
    (folder / apptainer.IMAGE).touch()
    path = f"{programs}:/usr/bin:/bin"
    done = subprocess.run(
        [str(folder / script), *arguments],
        env={"PATH": path, "CALLED": str(called), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return called.read_text().splitlines()[1:]


def write(deployment: Deployment, folder: Path) -> None:
    """The folder, for a start without a built image."""
    with pytest.raises(HostError, match=r"triton\.sif is not built"):
        apptainer.write(deployment, folder, report=lambda line: None)


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, *lines: str) -> None:
    """Put a program of these lines before all others."""
    (folder / name).write_text("\n".join(["#!/bin/sh", *lines, ""]))
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


# Storage with one model of one file, in the place of rclone.
RCLONE = """\
for where; do :; done
case $1:$where in
lsf:models:models/gptj) echo 'gpt/config.pbtxt;8;today' ;;
lsf:*) echo 'gpt/config.pbtxt;8' ;;
sync:*) mkdir -p "$where/gpt" && echo fetched > "$where/gpt/config.pbtxt" ;;
esac
"""


@pytest.fixture
def no_apptainer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apptainer, "PROGRAM", "apptainer-that-nobody-has")


@pytest.mark.usefixtures("no_apptainer")
@pytest.mark.parametrize(
    ("program", "prefix"), [("apptainer", "APPTAINERENV"), ("singularity", "SINGULARITYENV")]
)
def test_the_start_script_passes_gpus_models_and_ports(
    deployment: Deployment, tmp_path: Path, program: str, prefix: str
) -> None:
    folder = tmp_path / "sif"
    write(deployment, folder)
    called = run_script(folder, program, CUDA_VISIBLE_DEVICES="5,6", HTTP_PORT="9000")
    assert called == [
        "exec", "--nv", "--cleanenv", "--contain", "--pid", "--no-home", "--no-privs", "--pwd", "/tmp",
        "--bind", f"{deployment.models}:/models:ro", str(folder / "triton.sif"),
        *triton.COMMAND, "--http-port=9000", "--grpc-port=18001", "--metrics-port=18002",
        f"{prefix}_CUDA_VISIBLE_DEVICES=5,6", f"{prefix}_NCCL_LAUNCH_MODE=GROUP",
    ]  # fmt: skip


@pytest.mark.usefixtures("no_apptainer")
def test_the_start_script_takes_another_repository_and_has_gpus_of_its_own(
    deployment: Deployment, tmp_path: Path
) -> None:
    folder = tmp_path / "sif"
    write(deployment, folder)
    (tmp_path / "moved").mkdir()
    called = run_script(folder, "apptainer", str(tmp_path / "moved"))
    assert f"{tmp_path / 'moved'}:/models:ro" in called
    assert "APPTAINERENV_CUDA_VISIBLE_DEVICES=2,3" in called


@pytest.mark.usefixtures("no_apptainer")
def test_the_start_script_serves_what_the_other_script_has_fetched(
    without_repository: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "new" / "sif"
    with pytest.raises(HostError, match=r"triton\.sif is not built"):
        apptainer.write(without_repository, folder, stored=BUCKET, report=lambda line: None)
    installed(tmp_path, monkeypatch, "rclone", *RCLONE.splitlines())
    subprocess.run([folder / apptainer.FETCH], check=True)
    assert (folder / "models" / "gpt" / "config.pbtxt").read_text() == "fetched\n"
    assert f"{folder / 'models'}:/models:ro" in run_script(folder, "apptainer")


@pytest.mark.usefixtures("no_apptainer")
def test_a_start_without_a_repository_says_how_to_name_one(
    without_repository: Deployment, tmp_path: Path
) -> None:
    write(without_repository, tmp_path / "sif")
    script = tmp_path / "sif" / apptainer.START
    done = subprocess.run([script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"no model repository: none given; usage: {script} MODEL_REPOSITORY\n"


@pytest.mark.usefixtures("no_apptainer")
def test_every_script_can_be_started_and_no_other_file(
    without_repository: Deployment, tmp_path: Path
) -> None:
    folder = tmp_path / "sif"
    for _ in range(2):  # into a folder that is there, too
        with pytest.raises(HostError, match=r"triton\.sif is not built"):
            apptainer.write(without_repository, folder, stored=BUCKET, report=lambda line: None)
    started = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir() if os.access(path, os.X_OK)
    }
    assert started == {"triton_start.sh": 0o755, "triton_probe.sh": 0o755, "fetch_models.sh": 0o755}


@pytest.mark.usefixtures("no_apptainer")
def test_the_probe_script_asks_the_server_on_its_ports(deployment: Deployment, tmp_path: Path) -> None:
    folder = tmp_path / "sif"
    write(deployment, folder)
    called = run_script(folder, "python3", "ready", script=apptainer.ASK, HTTP_PORT="9000")
    assert called == [str(folder / "probe.py"), "ready", "30", "9000", "18001"]
    assert (folder / "probe.py").read_text() == health.SCRIPT


@pytest.mark.usefixtures("no_apptainer")
def test_the_probe_script_takes_the_images_python_where_the_machine_has_none(
    deployment: Deployment, tmp_path: Path
) -> None:
    folder = tmp_path / "sif"
    write(deployment, folder)
    called = run_script(folder, "apptainer", "alive", "9", script=apptainer.ASK, python="exit 1")
    assert called == [
        "exec", "--cleanenv", "--contain", "--pid", "--no-home", "--no-privs", "--pwd", "/tmp",
        "--bind", f"{folder / 'probe.py'}:/probe.py:ro", str(folder / "triton.sif"),
        "python3", "/probe.py", "alive", "9", "18000", "18001",
    ]  # fmt: skip


@pytest.mark.usefixtures("no_apptainer")
def test_the_start_script_says_what_is_missing(deployment: Deployment, tmp_path: Path) -> None:
    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(tmp_path / "sif" / apptainer.START), *arguments]
        return subprocess.run(
            command, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False
        )

    write(deployment, tmp_path / "sif")
    nowhere = start("/nowhere")
    assert (nowhere.returncode, "no model repository: /nowhere" in nowhere.stderr) == (2, True)
    unbuilt = start()
    assert (unbuilt.returncode, "triton.sif is not built" in unbuilt.stderr) == (4, True)


@pytest.mark.parametrize("kind", ["deployment", "on_cpu", "without_repository"])
def test_scripts_are_scripts(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    files = apptainer.render(request.getfixturevalue(kind))
    for name in (apptainer.START, apptainer.ASK, apptainer.BATCH):
        (tmp_path / name).write_text(files[name])
        done = subprocess.run(
            ["bash", "-n", str(tmp_path / name)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert ("--nv" in files[apptainer.START]) == (kind != "on_cpu")
    assert ("#SBATCH --gres=gpu:2" in files[apptainer.BATCH]) == (kind != "on_cpu")
    # One node has nobody to follow it.
    assert "srun --nodes" not in files[apptainer.BATCH]
    assert "followers" not in files[apptainer.BATCH]
    # sbatch stops looking for options at the first command.
    first = next(line for line in files[apptainer.BATCH].splitlines() if line and line[0] != "#")
    assert "#SBATCH" not in files[apptainer.BATCH].partition(first)[2]


def test_the_target_writes_what_its_options_ask_for(without_repository: Deployment) -> None:
    for options in ({"archive": True}, {"stored": BUCKET}, {}):
        made: Any = options
        assert apptainer.Apptainer(**made).files(without_repository) == apptainer.render(
            without_repository, **made
        )


def test_a_definition_names_the_engine_or_a_tar(deployment: Deployment) -> None:
    definition = apptainer.render(deployment)[apptainer.DEFINITION]
    assert definition.startswith("Bootstrap: docker-daemon\nFrom: triton_with_ft:22.12-sm80\n")
    untagged = replace(deployment, image="registry:5000/triton_with_ft")
    assert "From: registry:5000/triton_with_ft:latest\n" in apptainer.render(untagged)[apptainer.DEFINITION]
    archived = apptainer.render(deployment, archive=True)[apptainer.DEFINITION]
    assert archived.startswith("Bootstrap: docker-archive\nFrom: image.tar\n")


@pytest.mark.usefixtures("no_apptainer")
def test_without_apptainer_it_is_said_what_was_not_built(deployment: Deployment, tmp_path: Path) -> None:
    folder = tmp_path / "sif"
    with pytest.raises(HostError, match="is not installed here") as caught:
        apptainer.write(deployment, folder, report=lambda line: None)
    assert "build triton.sif triton.def" in str(caught.value)
    assert "--archive" in str(caught.value)
    assert {path.name for path in folder.iterdir()} == {
        "triton.def",
        "triton_start.sh",
        "triton_probe.sh",
        "probe.py",
        "triton.sbatch",
    }


@pytest.mark.usefixtures("no_apptainer")
def test_with_the_archive_all_is_there_to_build_elsewhere(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, monkeypatch, "docker", 'echo "$1 $2 $3 $5" > "$4"')
    said: list[str] = []
    folder = tmp_path / "sif"
    assert apptainer.write(deployment, folder, archive=True, report=said.append) is None
    assert (folder / "image.tar").read_text() == f"image save --output {deployment.image}\n"
    assert "triton.sif is not built" in said[-1]
    assert (folder / "triton.def").read_text().startswith("Bootstrap: docker-archive\nFrom: image.tar\n")


@pytest.mark.usefixtures("no_apptainer")
def test_an_image_that_cannot_be_saved_is_named_and_leaves_no_tar(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, monkeypatch, "docker", 'echo half > "$4"', "exit 1")
    folder = tmp_path / "sif"
    with pytest.raises(HostError, match="the image cannot be saved") as caught:
        apptainer.write(deployment, folder, archive=True, report=lambda line: None)
    assert caught.value.where == deployment.image
    assert not [path for path in folder.iterdir() if "image.tar" in path.name]


def test_a_build_that_fails_shows_the_last_lines_of_its_log(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever encoding they are in."""
    installed(tmp_path, monkeypatch, "apptainer", "printf 'one\\ntwo\\nthr\\351\\nfour\\n\\n'", "exit 255")
    with pytest.raises(BuildError) as caught:
        apptainer.write(deployment, tmp_path / "sif", report=lambda line: None)
    assert caught.value.what.splitlines() == [
        "apptainer ended with code 255",
        "    two",
        "    thr\N{REPLACEMENT CHARACTER}",
        "    four",
    ]


@pytest.mark.parametrize("code", [0, 1])
def test_a_sif_is_whole_or_absent(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    installed(tmp_path, monkeypatch, "apptainer", 'echo "INFO: $*"', 'echo half > "$3"', f"exit {code}")
    folder = tmp_path / "sif"
    if code:
        with pytest.raises(BuildError, match="apptainer ended with code 1"):
            apptainer.write(deployment, folder, report=print)
    else:
        assert apptainer.write(deployment, folder, report=print) == folder / "triton.sif"
    assert (folder / "triton.sif").exists() == (code == 0)
    assert not list(folder.glob(".*.partial"))
    assert re.search(
        r"build --force \.triton\.sif\.\w+\.partial/triton\.sif triton\.def",
        (folder / "build.log").read_text(),
    )
