"""The model repository for hostile requests: Python models, which all of our newer servers can run."""

from __future__ import annotations

from pathlib import Path

ECHO, STEPS, SEQUENCE, TWICE = "echo", "steps", "sequence", "twice"
NAMES = (ECHO, STEPS, SEQUENCE, TWICE)
# Input of the models, its datatype in requests and in configurations. The outputs have OUT_ before the name.
INPUTS = {"TEXT": ("BYTES", "TYPE_STRING"), "WHOLE": ("INT32", "TYPE_INT32"), "REAL": ("FP32", "TYPE_FP32")}
MAX_STEPS = 20

_ECHO = """\
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUT_" + tensor.name(), tensor.as_numpy()) for tensor in request.inputs()]
            )
            for request in requests
        ]

    def finalize(self):
        print("finalized", flush=True)
"""
_STEPS = f"""\
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender, text, steps = request.get_response_sender(), None, 1
            for tensor in request.inputs():
                if tensor.name() == "WHOLE" and tensor.as_numpy().size:
                    steps = min(int(tensor.as_numpy().flat[0]), {MAX_STEPS})
                if tensor.name() == "TEXT":
                    text = tensor.as_numpy()
            for _ in range(steps):
                outputs = [] if text is None else [pb_utils.Tensor("OUT_TEXT", text)]
                sender.send(pb_utils.InferenceResponse(outputs))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def write(repository: Path) -> Path:
    """Write the models into a repository, and return its path."""
    batched = "max_batch_size: 8"
    _model(repository, ECHO, _config(ECHO, batched), _ECHO)
    _model(
        repository,
        STEPS,
        _config(STEPS, "model_transaction_policy { decoupled: true }", "TEXT WHOLE"),
        _STEPS,
    )
    idle = "max_sequence_idle_microseconds: 1000000"
    _model(repository, SEQUENCE, _config(SEQUENCE, f"{batched}\nsequence_batching {{ {idle} }}"), _ECHO)
    maps = 'input_map { key: "TEXT" value: "TEXT" } output_map { key: "OUT_TEXT" value: "OUT_TEXT" }'
    step = f'ensemble_scheduling {{ step [ {{ model_name: "{ECHO}" model_version: -1 {maps} }} ] }}'
    config = _config(TWICE, f'platform: "ensemble"\n{batched}\n{step}', "TEXT", optional=False, backend="")
    _model(repository, TWICE, config, None)
    return repository


def _config(
    name: str, more: str, inputs: str = " ".join(INPUTS), *, optional: bool = True, backend: str = "python"
) -> str:
    kept = inputs.split()
    taken = [
        f'{{ name: "{key}" data_type: {INPUTS[key][1]} dims: [ -1 ]{" optional: true" * optional} }}'
        for key in kept
    ]
    given = [f'{{ name: "OUT_{key}" data_type: {INPUTS[key][1]} dims: [ -1 ] }}' for key in kept]
    lines = [f'name: "{name}"', more, f"input [ {', '.join(taken)} ]", f"output [ {', '.join(given)} ]"]
    return "\n".join([*lines, f'backend: "{backend}"' if backend else "", ""])


def _model(repository: Path, name: str, config: str, code: str | None) -> None:
    version = repository / name / "1"
    version.mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(config)
    if code is not None:
        (version / "model.py").write_text(code)
