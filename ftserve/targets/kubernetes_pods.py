"""What a cluster needs to know of pods: account, place, pull secrets, further labels; texts as they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ftbuild.errors import ConfigError
from ftserve import health

# Kubernetes' syntax of names, label keys and label values (its docs, "Labels and Selectors").
_SUBDOMAIN = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
_NAME = re.compile(rf"(?=.{{1,253}}$){_SUBDOMAIN}")
_KEY = re.compile(rf"((?=[^/]{{1,253}}/){_SUBDOMAIN}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
# A new pod would wait for the GPUs of the old one.
ROLLOUT = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
# A pod that ends first goes on answering, until no Service sends it anything more, and then ends its answers.
LEAVING = {"preStop": {"exec": {"command": ["sleep", str(health.LEAVING_SECONDS)]}}}
ENDING = {"terminationGracePeriodSeconds": health.LEAVING_SECONDS + health.STOP_SECONDS}
# By these everything of a deployment is found.
_OWN = ("app.kubernetes.io/name", "app.kubernetes.io/instance")


@dataclass(frozen=True)
class Pods:
    """The wishes of a cluster. All names and labels are right: `parse` looks at them."""

    account: str | None = None
    nodes: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, str]] = ()
    pull_secrets: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    def spec(self) -> dict[str, Any]:
        """Return the part of a pod's spec; KServe takes the same of a predictor."""
        fields: dict[str, Any] = {}
        if self.account:
            fields["serviceAccountName"] = self.account
        if self.nodes:
            fields["nodeSelector"] = dict(self.nodes)
        if self.tolerations:
            fields["tolerations"] = [dict(each) for each in self.tolerations]
        if self.pull_secrets:
            fields["imagePullSecrets"] = [{"name": name} for name in self.pull_secrets]
        return fields

    def labelled(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a document with the labels on it, and on the pods that it describes."""
        if self.labels:
            for metadata in _metadata(document):
                metadata["labels"] = {**self.labels, **metadata.get("labels", {})}
        return document


def parse(
    account: str | None = None,
    nodes: Sequence[str] = (),
    tolerations: Sequence[str] = (),
    pull_secrets: Sequence[str] = (),
    labels: Sequence[str] = (),
) -> Pods:
    """Return the wishes that options spell; ConfigError for what Kubernetes would refuse."""
    for option, name in (("--service-account", account), *(("--pull-secret", name) for name in pull_secrets)):
        if name is not None and not _NAME.fullmatch(name):
            raise ConfigError(
                f"{option} {name[:80]!r} is not a name", hint="lower-case letters, digits, dashes, dots"
            )
    pod_labels = _pairs("--label", labels)
    if taken := [key for key in pod_labels if key in _OWN]:
        raise ConfigError(f"--label {taken[0]} is how the pods are found", hint="another key, or --name")
    parsed = tuple(_toleration(text) for text in tolerations)
    return Pods(account, _pairs("--node-selector", nodes), parsed, tuple(pull_secrets), pod_labels)


def literal(text: str) -> str:
    """Return an argument or the value of a variable that a container gets as `text`.

    Kubernetes replaces $(NAME) in both, and takes $$ for a dollar (API reference, Container, `args`; EnvVar,
    `value`).
    """
    return text.replace("$", "$$")


def _pairs(option: str, pairs: Sequence[str]) -> dict[str, str]:
    by_key: dict[str, str] = {}
    for text in pairs:
        key, equals, value = text.partition("=")
        if not equals or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise ConfigError(
                f"{option} {text[:120]!r} is not a label", hint="KEY=VALUE, as kubectl label takes it"
            )
        if by_key.setdefault(key, value) != value:
            raise ConfigError(f"{option} gives {key} two values", hint=f"{by_key[key]} or {value}")
    return by_key


def _toleration(text: str) -> dict[str, str]:
    """Return the toleration of a taint as kubectl spells it: KEY, KEY=VALUE, each with :EFFECT or without."""
    taint, colon, effect = text.partition(":")
    key, equals, value = taint.partition("=")
    if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value) or (colon and effect not in _EFFECTS):
        raise ConfigError(
            f"--toleration {text[:120]!r} is not a taint",
            hint=f"KEY[=VALUE][:EFFECT], EFFECT of {', '.join(_EFFECTS)}",
        )
    operator = {"operator": "Equal", "value": value} if equals else {"operator": "Exists"}
    return {"key": key, **operator, **({"effect": effect} if colon else {})}


def _metadata(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield document["metadata"]
    spec = document.get("spec", {})
    group = spec.get("leaderWorkerTemplate", {})
    for template in (spec.get("template"), group.get("leaderTemplate"), group.get("workerTemplate")):
        if template:
            yield template["metadata"]
