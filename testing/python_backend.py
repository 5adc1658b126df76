"""What Triton's Python backend gives to a model, as far as ours use it, without a server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

NAME = "triton_python_backend_utils"
TYPES = {
    "TYPE_UINT32": np.uint32, "TYPE_INT32": np.int32, "TYPE_FP16": np.float16, "TYPE_FP32": np.float32,
}  # fmt: skip


class Tensor:
    """A tensor of a request or a response."""

    def __init__(self, name: str, array: Any) -> None:
        self.name, self.array = name, array

    def as_numpy(self) -> Any:
        """Return its values."""
        return self.array


class Error:
    """An error's message; `code` is None where nobody gave one."""

    INVALID_ARG = 3

    def __init__(self, message: str, code: int | None = None) -> None:
        self.message, self.code = message, code


class Response:
    """The outputs by their names, or an error."""

    def __init__(self, output_tensors: Sequence[Tensor], error: Error | None = None) -> None:
        self.outputs = {tensor.name: tensor.array for tensor in output_tensors}
        self.error = error


def module() -> ModuleType:
    """The module that a model imports by `NAME`."""
    made = ModuleType(NAME)
    made.__dict__.update(
        Tensor=Tensor,
        InferenceResponse=Response,
        TritonError=Error,
        triton_string_to_numpy=TYPES.__getitem__,
        get_input_tensor_by_name=lambda request, name: request.get(name),
    )
    return made


def request(**arrays: Any) -> dict[str, Tensor]:
    return {name: Tensor(name, array) for name, array in arrays.items()}


def model(source: Path, folder: Path, parameters: Mapping[str, str], outputs: Mapping[str, str]) -> Any:
    """The model in the file `source` as if it lay in `folder`, initialized as Triton does it.

    What it imports is the caller's to put into sys.modules.
    """
    namespace: dict[str, Any] = {"__file__": str(folder / "model.py"), "__name__": "model"}
    exec(compile(source.read_text(), str(source), "exec"), namespace)
    config = {
        "output": [{"name": name, "data_type": data_type} for name, data_type in outputs.items()],
        "parameters": {name: {"string_value": value} for name, value in parameters.items()},
    }
    made = namespace["TritonPythonModel"]()
    made.initialize({"model_config": json.dumps(config)})
    return made
