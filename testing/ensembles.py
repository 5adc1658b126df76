"""Ensembles of a model repository, checked as a server checks them when it loads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ftbuild.models import config_pbtxt, ensemble


def configs(folder: Path) -> dict[str, Any]:
    """Return the config.pbtxt of every model of a repository."""
    return {path.name: config_pbtxt.read(path / config_pbtxt.CONFIG) for path in folder.iterdir()}


def parameters(folder: Path, model: str) -> dict[str, str]:
    """Return the parameters of a model of a repository."""
    found = config_pbtxt.read(folder / model / config_pbtxt.CONFIG).parameters
    return {name: value.string_value for name, value in found.items()}


def check(models: Mapping[str, Any]) -> None:
    """Fail unless every input of a step is fed, from one place, by a tensor of the same type and shape."""
    whole = models[ensemble.ENSEMBLE]
    known = {tensor.name: _kind(tensor) for tensor in whole.input}
    for step in whole.ensemble_scheduling.step:
        part = models[step.model_name]
        inputs = {tensor.name: tensor for tensor in part.input}
        needed = {name for name, tensor in inputs.items() if not tensor.optional}
        assert needed <= set(step.input_map) <= set(inputs), step.model_name
        for name, source in step.input_map.items():
            assert known[source] == _kind(inputs[name]), (step.model_name, name)
        outputs = {tensor.name: tensor for tensor in part.output}
        assert set(step.output_map) <= set(outputs), step.model_name
        for name, target in step.output_map.items():
            assert target not in known, (step.model_name, name)
            known[target] = _kind(outputs[name])
    for tensor in whole.output:
        assert known[tensor.name] == _kind(tensor), tensor.name


def _kind(tensor: Any) -> tuple[int, list[int]]:
    return tensor.data_type, list(tensor.dims)
