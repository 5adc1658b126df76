"""Model repositories in object storage and registries, and pods as a cluster wants them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ftbuild.errors import ConfigError
from ftserve import stored
from ftserve.deployment import Deployment, Options, Ports, decide
from ftserve.front_options import Front
from ftserve.image_choice import Image
from ftserve.requirements import Needs
from ftserve.targets import apptainer, compose, kserve, kubernetes, kubernetes_pods
from ftserve.targets.kubernetes import Cluster
from testing import kubernetes_schemas, needs

DIGEST = f"sha256:{'a' * 64}"
IMAGE = f"registry.example.com/team/gptj@{DIGEST}"
FETCHER = "registry.example.com/rclone/rclone:1.71"
PODS = {
    "account": "models-reader",
    "nodes": ["gpu.example.com/kind=h100"],
    "tolerations": ["nvidia.com/gpu", "dedicated=inference:NoSchedule"],
    "pull_secrets": ["registry"],
    "labels": ["team=search"],
}


@pytest.fixture
def deployment() -> Deployment:
    options = Options(None, (0,), Ports(18000, 18001, 18002), 2**30, "gpt")
    return decide(options, Needs(("fastertransformer",), ()), Image("triton_with_ft:22.12-sm80"), "gpu")


def documents(deployment: Deployment, **options: Any) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(kubernetes.render(deployment, Cluster(**options))))


def bucket(uri: str = "s3://models/gptj", endpoint: str | None = None) -> stored.Stored:
    return stored.parse(uri, FETCHER, endpoint)


@pytest.mark.parametrize("where", [bucket(), bucket("gs://models/gptj"), stored.parse(f"oci://{IMAGE}")])
def test_kubernetes_schema_accepts_it(where: stored.Stored, deployment: Deployment) -> None:
    secret = "storage" if where.fetcher else None
    pods = kubernetes_pods.parse(**PODS)  # type: ignore[arg-type]
    for document in documents(deployment, stored=where, storage_secret=secret, pods=pods, replicas=2):
        kubernetes_schemas.require_accepted(document, oldest=kubernetes_schemas.IMAGE_VOLUMES)


def test_a_bucket_is_fetched_before_the_server_starts(deployment: Deployment) -> None:
    where = bucket(endpoint="https://minio.example.com:9000")
    pod = documents(deployment, stored=where, storage_secret="storage")[0]["spec"]["template"]["spec"]
    (fetch,) = pod["initContainers"]
    assert fetch["image"] == FETCHER
    assert fetch["command"] == ["/bin/sh", "-c"]
    script, *arguments = fetch["args"]
    assert arguments == ["fetch", "s3://models/gptj", "/models"]
    # Kubernetes takes $$ for a dollar, and replaces $(NAME).
    assert "$" not in script.replace("$$", "")
    assert script.replace("$$", "$") == stored.SCRIPT
    plain = {each["name"]: each["value"] for each in fetch["env"] if "value" in each}
    assert plain["RCLONE_CONFIG_MODELS_ENDPOINT"] == "https://minio.example.com:9000"
    secret = {each["valueFrom"]["secretKeyRef"]["name"] for each in fetch["env"] if "valueFrom" in each}
    assert secret == {"storage"}
    assert {"name": "models", "emptyDir": {}} in pod["volumes"]
    (server,) = pod["containers"]
    assert {"name": "models", "mountPath": "/models", "readOnly": True} in server["volumeMounts"]


def test_a_registrys_models_are_mounted_by_digest(deployment: Deployment) -> None:
    pod = documents(deployment, stored=stored.parse(f"oci://{IMAGE}"))[0]["spec"]["template"]["spec"]
    volume = next(each for each in pod["volumes"] if each["name"] == "models")
    assert volume["image"] == {"reference": IMAGE, "pullPolicy": "IfNotPresent"}
    mount = next(each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "models")
    assert (mount["subPath"], mount["readOnly"]) == ("models", True)
    assert "initContainers" not in pod


@pytest.mark.parametrize("nodes", [1, 2])
def test_every_pod_is_as_the_cluster_wants_it(nodes: int, deployment: Deployment) -> None:
    pods = kubernetes_pods.parse(**PODS)  # type: ignore[arg-type]
    found = documents(replace(deployment, nodes=nodes), claim="gptj", pods=pods)
    templates = [
        each
        for each in (
            found[0]["spec"].get("template"),
            *found[0]["spec"].get("leaderWorkerTemplate", {}).values(),
        )
        if isinstance(each, dict) and "spec" in each
    ]
    assert len(templates) == nodes
    for template in templates:
        spec = template["spec"]
        assert spec["serviceAccountName"] == "models-reader"
        assert spec["nodeSelector"] == {"gpu.example.com/kind": "h100"}
        assert spec["tolerations"] == [
            {"key": "nvidia.com/gpu", "operator": "Exists"},
            {"key": "dedicated", "operator": "Equal", "value": "inference", "effect": "NoSchedule"},
        ]
        assert spec["imagePullSecrets"] == [{"name": "registry"}]
        assert template["metadata"]["labels"]["team"] == "search"
    assert all(document["metadata"]["labels"]["team"] == "search" for document in found)
    selectors = json.dumps([document["spec"].get("selector") for document in found if "spec" in document])
    assert "team" not in selectors


def test_nothing_of_it_is_there_unasked(deployment: Deployment) -> None:
    pod = documents(deployment, claim="gptj")[0]["spec"]["template"]["spec"]
    assert not pod.keys() & {"serviceAccountName", "nodeSelector", "tolerations", "imagePullSecrets"}


def test_kserve_takes_the_same_wishes(deployment: Deployment) -> None:
    service = kserve.Service(f"oci://{IMAGE}", pods=kubernetes_pods.parse(**PODS))  # type: ignore[arg-type]
    *_, found = yaml.safe_load_all(kserve.render(deployment, service))
    predictor = found["spec"]["predictor"]
    assert predictor["serviceAccountName"] == "models-reader"
    assert predictor["model"]["storageUri"] == f"oci://{IMAGE}"
    assert found["metadata"]["labels"]["team"] == "search"


def test_compose_fetches_into_a_volume(deployment: Deployment) -> None:
    found = yaml.safe_load(compose.render(deployment, bucket()))
    fetch, server = found["services"]["fetch"], found["services"]["triton"]
    assert fetch["environment"]["RCLONE_CONFIG_MODELS_PROVIDER"] == "AWS"
    assert fetch["environment"]["AWS_SECRET_ACCESS_KEY"] is None
    assert [*fetch["entrypoint"], *fetch["command"][1:]] == [
        *("/bin/sh", "-c"),
        *("fetch", "s3://models/gptj", "/models"),
    ]
    assert server["depends_on"] == {"fetch": {"condition": "service_completed_successfully"}}
    assert server["volumes"] == [
        {"type": "volume", "source": "models", "target": "/models", "read_only": True}
    ]
    with pytest.raises(ConfigError, match="no models from a registry"):
        compose.render(deployment, stored.parse(f"oci://{IMAGE}"))


def test_composes_front_needs_its_tokenizer_before_anything_is_fetched(deployment: Deployment) -> None:
    front = Front("triton_with_ft:openai", "gpt", 50256, 1024)
    with pytest.raises(ConfigError, match="needs the tokenizer in a folder"):
        compose.render(replace(deployment, front=front), bucket())


def test_no_platform_replaces_variables_in_what_its_containers_get(deployment: Deployment) -> None:
    """Kubernetes replaces $(NAME) in arguments and in values of variables, Compose more."""
    word, url = "--strict=$(HOSTNAME) $$ ${HOME}", "https://minio.example.com/$(HOSTNAME)/$$x"
    wanted = replace(deployment, command=(word,), environment={"NCCL_DEBUG": word})
    where = replace(bucket(endpoint=url), place=word)
    pod = documents(wanted, stored=where)[0]["spec"]["template"]["spec"]
    (fetch,), (server,) = pod["initContainers"], pod["containers"]
    composed = yaml.safe_load(compose.render(wanted, where))["services"]
    runtime = list(yaml.safe_load_all(kserve.render(wanted, kserve.Service("pvc://models"))))[1]
    (served,) = runtime["spec"]["containers"]
    written = [
        *(each["args"] for each in (fetch, server, served)),
        *(each["command"] for each in (composed["fetch"], composed["triton"])),
        *([variable["value"] for variable in each["env"]] for each in (fetch, server, served)),
        *(composed[name]["environment"].values() for name in ("fetch", "triton")),
    ]
    dollars = [[text for text in texts if text and "$" in text] for texts in written]
    assert all(dollars)
    for text in (text for texts in dollars for text in texts):
        assert "$" not in text.replace("$$", "")
        assert text.replace("$$", "$") in (word, url, where.uri, stored.SCRIPT)


def test_a_batch_script_has_one_that_fetches_beside_it(deployment: Deployment) -> None:
    script = apptainer.render(deployment, stored=bucket("gs://models/gptj"))[apptainer.FETCH]
    assert "export RCLONE_CONFIG_MODELS_TYPE='google cloud storage'\n" in script
    assert "set -- gs://models/gptj " in script
    assert script.endswith(stored.SCRIPT)
    assert apptainer.FETCH not in apptainer.render(deployment)
    with pytest.raises(ConfigError, match="no models from a registry"):
        apptainer.render(deployment, stored=stored.parse(f"oci://{IMAGE}"))


def test_compose_itself_accepts_it(deployment: Deployment, tmp_path: Path) -> None:
    argv = [*needs.compose(), "--file", str(tmp_path / "compose.yaml"), "config", "--quiet"]
    (tmp_path / "compose.yaml").write_text(compose.render(deployment, bucket()))
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("where", [bucket(), bucket("gs://models/gptj")], ids=lambda where: where.scheme)
def test_no_file_decides_from_where_models_are_fetched(where: stored.Stored, tmp_path: Path) -> None:
    """Else another user of the machine could write it."""
    (tmp_path / "rclone.conf").touch()  # where rclone looks, too
    argv = [needs.program("rclone"), "config", "file"]
    done = subprocess.run(
        argv,
        env={"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), **where.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "Configuration is in memory only\n"


@pytest.mark.parametrize(
    ("uri", "fetcher", "endpoint", "says"),
    [
        ("/srv/models", FETCHER, None, "not the address of a model repository"),
        ("http://models/gptj", FETCHER, None, "not the address of a model repository"),
        ("s3://models/gptj", None, None, "nothing fetches"),
        ("s3:///gptj", FETCHER, None, "not a bucket"),
        ("s3://models/../other", FETCHER, None, "not a bucket"),
        ("s3://models/a$(id)", FETCHER, None, "not a bucket"),
        ("s3://models,endpoint=evil/x", FETCHER, None, "not a bucket"),
        ("gs://models/a\nb", FETCHER, None, "not a bucket"),
        *(
            ("s3://models/gptj", FETCHER, url, "not the URL of a server")
            for url in (
                "minio:9000",
                "ftp://minio",
                "https://",
                "https://key:secret@minio",
                "https://minio:99999",
                "https://minio:port",
                "https://[minio",
                "https://minio example",
                "https://minio/?key=secret",
                "https://minio#part",
            )
        ),
        ("oci://registry.example.com/gptj:1", None, None, "has no digest"),
        (f"oci://{IMAGE}", FETCHER, None, "mounted by the container runtime"),
        (f"oci://NOT A NAME@{DIGEST}", None, None, "NOT A NAME"),
    ],
)
def test_what_is_no_place_is_refused(uri: str, fetcher: str | None, endpoint: str | None, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        stored.parse(uri, fetcher, endpoint)


def test_a_registry_has_no_public_buckets() -> None:
    with pytest.raises(ConfigError, match="mounted by the container runtime"):
        stored.parse(f"oci://{IMAGE}", anonymous=True)


@pytest.mark.parametrize(
    ("scheme", "endpoint", "is_asked"),
    [
        ("s3", "https://minio.example.com:9000", "https://minio.example.com:9000"),
        # rclone adds no path of Google's API to an endpoint.
        ("gs", "http://127.0.0.1:9023", "http://127.0.0.1:9023/storage/v1/"),
        ("gs", "https://storage.example.com/", "https://storage.example.com/storage/v1/"),
        ("gs", "https://storage.example.com/proxied/v1/", "https://storage.example.com/proxied/v1/"),
    ],
)
def test_an_endpoint_is_that_of_the_protocol(scheme: str, endpoint: str, is_asked: str) -> None:
    found = bucket(f"{scheme}://models/gptj", endpoint=endpoint)
    assert found.environment["RCLONE_CONFIG_MODELS_ENDPOINT"] == is_asked


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_public_bucket_gets_no_credentials(scheme: str, deployment: Deployment) -> None:
    public = stored.parse(f"{scheme}://models/gptj", FETCHER, anonymous=True)
    assert public.environment["RCLONE_CONFIG_MODELS_ENV_AUTH"] == "false"
    assert public.environment.get("RCLONE_CONFIG_MODELS_ANONYMOUS") == {"gs": "true"}.get(scheme)
    fetch = yaml.safe_load(compose.render(deployment, public))["services"]["fetch"]
    assert None not in fetch["environment"].values()
    with pytest.raises(ConfigError, match="asks without any"):
        Cluster(stored=public, storage_secret="storage")


@pytest.mark.parametrize(
    ("scheme", "other"), [("s3", "RCLONE_CONFIG_MODELS_SERVICE_ACCOUNT_CREDENTIALS"), ("gs", "AWS_REGION")]
)
def test_a_pod_takes_the_secrets_of_its_cloud_alone(scheme: str, other: str, deployment: Deployment) -> None:
    where = bucket(f"{scheme}://models/gptj")
    pod = documents(deployment, stored=where, storage_secret="storage")[0]["spec"]["template"]["spec"]
    names = {each["name"] for each in pod["initContainers"][0]["env"]}
    assert set(where.credentials) <= names
    assert other not in names


def test_a_path_may_have_spaces(deployment: Deployment) -> None:
    where = bucket("gs://models/our gptj/")
    assert where.uri == "gs://models/our gptj"
    assert "\nset -- 'gs://models/our gptj' " in apptainer.render(deployment, stored=where)[apptainer.FETCH]


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        ({"account": "Not_A_Name"}, "--service-account 'Not_A_Name'"),
        ({"pull_secrets": ["a b"]}, "--pull-secret 'a b'"),
        ({"nodes": ["h100"]}, "--node-selector 'h100'"),
        ({"nodes": ["kind=a b"]}, "--node-selector 'kind=a b'"),
        ({"nodes": ["kind=a", "kind=b"]}, "--node-selector gives kind two values"),
        ({"tolerations": ["gpu:Sometimes"]}, "--toleration 'gpu:Sometimes'"),
        ({"tolerations": [""]}, "--toleration ''"),
        ({"labels": ["app.kubernetes.io/name=other"]}, "--label app.kubernetes.io/name "),
        ({"labels": ["team=" + "x" * 64]}, "--label 'team=xxx"),
    ],
)
def test_what_kubernetes_would_refuse_is_refused_by_option(wrong: dict[str, Any], option: str) -> None:
    with pytest.raises(ConfigError) as caught:
        kubernetes_pods.parse(**wrong)
    assert caught.value.what.startswith(option)


@pytest.mark.parametrize("effect", ["NoSchedule", "PreferNoSchedule", "NoExecute"])
def test_every_effect_of_a_taint_is_tolerated(effect: str) -> None:
    pods = kubernetes_pods.parse(tolerations=[f"nvidia.com/gpu:{effect}", f"dedicated=:{effect}"])
    assert pods.spec()["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": effect},
        {"key": "dedicated", "operator": "Equal", "value": "", "effect": effect},
    ]


def test_a_secret_of_the_storage_is_a_name_and_that_of_a_group_is_not_shown() -> None:
    with pytest.raises(ConfigError, match="--storage-secret 'No Secret' is not the name of a Secret"):
        Cluster(stored=bucket(), storage_secret="No Secret")
    group = Cluster()
    assert group.node_key not in repr(group)
    assert len(group.node_key) == 64
    assert group.node_key != Cluster().node_key


def test_two_places_are_one_too_many() -> None:
    with pytest.raises(ConfigError, match="the same thing"):
        Cluster(claim="gptj", stored=bucket())
    with pytest.raises(ConfigError, match="object storage"):
        Cluster(stored=stored.parse(f"oci://{IMAGE}"), storage_secret="storage")
    with pytest.raises(ConfigError, match="closes the way"):
        Cluster(stored=bucket(), isolated=True)
