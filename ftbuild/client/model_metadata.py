"""Metadata of a served model: inputs, steps of an ensemble, mode of answering. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftbuild.client.probe import ALWAYS, NEUTRAL

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Input:
    """An input's data type (Triton's name, `TYPE_` left out), and whether a request may lack it."""

    data_type: str
    optional: bool


@dataclass(frozen=True)
class Step:
    """A model of an ensemble; both mappings are from its own tensors to the ensemble's."""

    model: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True)
class ModelMetadata:
    """A model by its config.pbtxt."""

    name: str
    inputs: Mapping[str, Input]
    parameters: Mapping[str, str]
    steps: tuple[Step, ...]
    decoupled: bool

    @property
    def data_types(self) -> dict[str, str]:
        """Name -> data type of every input."""
        return {name: tensor.data_type for name, tensor in self.inputs.items()}

    @property
    def computes_in(self) -> str:
        """fp16, fp32 or bf16; release 1.1's GPT-J and T5 have `is_half` only."""
        is_half = self.parameters.get("is_half")
        return self.parameters["data_type"] if is_half is None else ("fp32", "fp16")[int(is_half)]


def read(config: Mapping[str, Any]) -> ModelMetadata:
    """Parse the JSON form of a ModelConfig."""
    steps = config.get("ensemble_scheduling", {}).get("step", ())
    return ModelMetadata(
        name=config["name"],
        inputs={
            tensor["name"]: Input(tensor["data_type"].removeprefix("TYPE_"), bool(tensor.get("optional")))
            for tensor in config["input"]
        },
        parameters={name: value["string_value"] for name, value in config.get("parameters", {}).items()},
        steps=tuple(Step(step["model_name"], step["input_map"], step["output_map"]) for step in steps),
        decoupled=bool(config.get("model_transaction_policy", {}).get("decoupled")),
    )


def options(model: ModelMetadata, parameters: Mapping[str, str], batch: int) -> dict[str, Array]:
    """Return values [batch, 1] for a greedy answer with log-probabilities; others only where required.

    `parameters` are those of the fastertransformer model: start_id and end_id, where requests must have them.
    """
    import numpy as np
    from tritonclient.utils import triton_to_np_dtype

    values = {**NEUTRAL, **{k: int(parameters[k]) for k in ("start_id", "end_id") if k in parameters}}
    return {
        name: np.full((batch, 1), values[name], triton_to_np_dtype(tensor.data_type))
        for name, tensor in model.inputs.items()
        if name in values and (name in ALWAYS or not tensor.optional)
    }


def sources(ensemble: ModelMetadata) -> dict[str, str]:
    """Return the ensemble's tensors that feed the inputs of the first step, by input."""
    return dict(ensemble.steps[0].inputs)


def chain(ensemble: ModelMetadata) -> Iterator[tuple[Step, Mapping[str, str]]]:
    """Yield the steps, each with the inputs that an earlier step or the request gives."""
    available = set(ensemble.inputs)
    for step in ensemble.steps:
        yield step, {name: tensor for name, tensor in step.inputs.items() if tensor in available}
        available |= set(step.outputs.values())
