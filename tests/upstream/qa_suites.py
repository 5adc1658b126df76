"""Which of Triton's own qa tests run against our server, on which models, and which are left out and why.

The names are those of the server's repository, r26.06, folder qa. Models of frameworks that our bases lack
have stand-ins: Python models with the same name, inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

GPU = "needs a GPU"
TORCH = "needs torch in the server's image"
ONNX = "needs the ONNX runtime"
CONDITIONS = "checks what only its test.sh sets up"
FOREIGN = "needs torch or models of another repository"
SHUT = "needs CUDA shared memory, and so a GPU"

_SUM = """\
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            one, other = inputs["INPUT0"], inputs["INPUT1"]
            outputs = {"OUTPUT0": one + other, "OUTPUT1": one - other}
            wanted = request.requested_output_names()
            tensors = [pb_utils.Tensor(name, value) for name, value in outputs.items() if name in wanted]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
"""
_IDENTITY = """\
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor(t.name().replace("INPUT", "OUTPUT"), t.as_numpy()) for t in request.inputs()]
            )
            for request in requests
        ]
"""


@dataclass(frozen=True)
class Model:
    """A model of a repository: a folder of qa, or a stand-in.

    `files` are paths below `folder` -> names in the version's folder; `edits` regular expressions in the
    configuration -> replacements; `more` lines at its end.
    """

    folder: str = ""
    files: Mapping[str, str] = field(default_factory=lambda: {"model.py": "model.py"})
    edits: Mapping[str, str] = field(default_factory=dict)
    more: str = ""
    code: str = ""
    config: str = ""


@dataclass(frozen=True)
class Suite:
    """A file of tests below qa, the models of its server, the server's options, and what is left out.

    Its tests have so many `seconds` together.
    """

    file: str
    models: Mapping[str, Model]
    options: Sequence[str] = ()
    only: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    seconds: int = 1200

    @property
    def name(self) -> str:
        """A short name: folder and file."""
        return self.file.removesuffix(".py") + (f" ({self.only})" if self.only else "")


def _python(name: str, edits: Mapping[str, str] | None = None, more: str = "", **files: str) -> Model:
    """A model of qa/python_models; `files` are names in the version's folder -> names there."""
    found = {source: f"{target}.py" for target, source in files.items()} or {"model.py": "model.py"}
    return Model(f"python_models/{name}", found, edits or {}, more)


def _named(name: str, of: str, **edits: str) -> Model:
    return _python(of, {r"(?m)^name:.*": f'name: "{name}"', **edits})


def _identity(data_type: str, inputs: int = 1, dims: str = "-1", batch: int = 8, more: str = "") -> Model:
    def tensors(word: str) -> str:
        return "".join(
            f'{word.lower()} {{ name: "{word}{number}" data_type: {data_type} dims: [ {dims} ] }}\n'
            for number in range(inputs)
        )

    config = f'backend: "python"\nmax_batch_size: {batch}\n{tensors("INPUT")}{tensors("OUTPUT")}{more}\n'
    return Model(code=_IDENTITY, config=config)


_SIMPLE = Model(
    code=_SUM,
    config='backend: "python"\nmax_batch_size: 8\n'
    + "".join(
        f'{word.lower()} {{ name: "{word}{number}" data_type: TYPE_INT32 dims: [ 16 ] }}\n'
        for word in ("INPUT", "OUTPUT")
        for number in (0, 1)
    ),
)
_SENDER = {
    f"response_sender{decoupled}{asynchronous}{batching}": _python(
        "response_sender",
        more="\n".join(
            (
                *(["model_transaction_policy { decoupled: True }"] if decoupled else []),
                *(["dynamic_batching { max_queue_delay_microseconds: 500000 }"] if batching else []),
            )
        ),
        model="model_async.py" if asynchronous else "model.py",
        model_common="model_common.py",
    )
    for decoupled in ("", "_decoupled")
    for asynchronous in ("", "_async")
    for batching in ("", "_batching")
}
_PYTHON = "L0_backend_python"
_EXPLICIT = ("--model-control-mode=explicit", "--load-model=simple", "--allow-client-shm=true")

TRACING = "the server is compiled without tracing"
_OF_CLIENTS = {
    "test_get_model_repository_index": "counts the seven models of upstream's examples",
    "test_get_trace_settings": TRACING,
    "test_update_trace_settings": TRACING,
}

SUITES: Sequence[Suite] = (
    Suite(
        "L0_http/generate_endpoint_test.py",
        {
            name: Model(f"python_models/generate_models/{name}", {"1/model.py": "model.py"})
            for name in ("mock_llm",)
        },
    ),
    Suite("L0_http/http_request_many_chunks.py", {"simple": _SIMPLE}, _EXPLICIT),
    Suite(
        "L0_http/http_input_size_limit_test.py",
        {"onnx_zero_1_float32": _identity("TYPE_FP32"), "simple_identity": _identity("TYPE_STRING")},
        left_out={
            "test_large_input_raw_binary": CONDITIONS,
            "test_large_input_json": CONDITIONS,
            "test_large_input_compressed": CONDITIONS,
        },
    ),
    Suite(
        "L0_http/http_input_size_limit_test.py",
        {"onnx_zero_1_float32": _identity("TYPE_FP32"), "simple_identity": _identity("TYPE_STRING")},
        [f"--http-max-input-size={2**27}"],
        only="test_large_input",
    ),
    Suite(
        "L0_http/http_test.py",
        {
            "onnx_zero_1_float32": _identity("TYPE_FP32"),
            "onnx_zero_1_object": _identity("TYPE_STRING"),
            "onnx_zero_1_object_1_element": _identity("TYPE_STRING", dims="1"),
            "onnx_zero_1_float16": _identity("TYPE_FP16", dims="-1, -1"),
            "onnx_zero_3_float32": _identity("TYPE_FP32", inputs=3),
            "onnx_zero_1_float32_queue": _identity("TYPE_FP32"),
            "simple_identity": _identity("TYPE_STRING"),
            "simple_identity_int64": _identity("TYPE_INT64"),
        },
        ["--model-control-mode=explicit", "--load-model=*"],
        left_out={"test_descriptive_status_code": ONNX, "test_loading_large_invalid_model": ONNX},
    ),
    Suite(
        "L0_http/python_http_aio_test.py",
        {"simple": _SIMPLE},
        ["--allow-client-shm=true"],
        left_out=_OF_CLIENTS,
    ),
    Suite(
        "L0_http/http_restricted_api_test.py",
        {"simple": _SIMPLE},
        [
            "--http-restricted-api=model-repository:admin-key=admin-value",
            "--http-restricted-api=inference,metadata:infer-key=infer-value",
        ],
    ),
    Suite(
        "L0_grpc/python_grpc_aio_test.py",
        {"simple": _SIMPLE},
        ["--allow-client-shm=true"],
        left_out=_OF_CLIENTS,
    ),
    Suite(
        f"{_PYTHON}/python_test.py",
        {
            "identity_fp32": _python("identity_fp32"),
            "identity_bf16": _python("identity_bf16"),
            "identity_uint8": _named(
                "identity_uint8",
                "identity_fp32",
                TYPE_FP32="TYPE_UINT8",
                **{r"(?m)^max_batch_size:.*": "max_batch_size: 8"},
            ),
            "identity_uint8_nobatch": _named(
                "identity_uint8_nobatch",
                "identity_fp32",
                TYPE_FP32="TYPE_UINT8",
                **{r"(?m)^max_batch_size:.*": ""},
            ),
            "identity_uint32": _named("identity_uint32", "identity_fp32", TYPE_FP32="TYPE_UINT32"),
            "identity_bool": _named("identity_bool", "identity_fp32", TYPE_FP32="TYPE_BOOL"),
            "delayed_model": _python("delayed_model"),
            "init_args": _python("init_args", {"TRITON_DIR_PATH": "/opt/tritonserver"}),
            "optional": _python("optional"),
            "non_contiguous": _python("non_contiguous"),
            "string": _python("string"),
            "string_fixed": _python("string_fixed"),
        },
        ["--allow-client-shm=true", "--backend-config=python,shm-default-byte-size=5242880"],
        left_out={
            "test_gpu_tensor_error": SHUT,
            "test_dlpack_tensor_error": SHUT,
            "test_infer_pytorch": TORCH,
            "test_bf16": TORCH,
        },
    ),
    Suite(
        f"{_PYTHON}/lifecycle/lifecycle_test.py",
        {
            name: _python(
                of,
                {r"(?m)^name:.*": f'name: "{name}"', **edits},
                more,
            )
            for name, of, edits, more in (
                ("error_code", "error_code", {}, ""),
                ("execute_cancel", "execute_cancel", {}, ""),
                (
                    "execute_error",
                    "execute_error",
                    {r"(?m)^max_batch_size:.*": "max_batch_size: 8"},
                    "dynamic_batching { preferred_batch_size: [8], max_queue_delay_microseconds: 1200000 }",
                ),
                (
                    "execute_grpc_error",
                    "execute_grpc_error",
                    {r"(?m)^max_batch_size:.*": "max_batch_size: 8"},
                    "dynamic_batching { preferred_batch_size: [8], max_queue_delay_microseconds: 1200000 }",
                ),
                ("decoupled_grpc_error", "decoupled_grpc_error", {}, ""),
                ("execute_return_error", "execute_return_error", {}, ""),
                ("wrong_model", "wrong_model", {"TYPE_FP32": "TYPE_UINT32"}, ""),
            )
        },
    ),
    Suite(
        f"{_PYTHON}/decoupled/decoupled_test.py",
        {
            name: _python(name)
            for name in ("identity_fp32", "execute_cancel", "response_sender_until_cancelled")
        },
        left_out=dict.fromkeys(
            (
                "test_decoupled_execute_error",
                "test_decoupled_bls",
                "test_decoupled_return_response_error",
                "test_decoupled_send_after_close_error",
                "test_decoupled_raise_exception",
            ),
            FOREIGN,
        ),
    ),
    Suite(f"{_PYTHON}/response_sender/response_sender_test.py", _SENDER),
    Suite(
        f"{_PYTHON}/response_sender/response_sender_complete_final_test.py",
        {"response_sender_complete_final": _python("response_sender_complete_final")},
    ),
    Suite(
        f"{_PYTHON}/parameters/response_parameters_test.py",
        {
            name: _python(name)
            for name in ("response_parameters", "response_parameters_decoupled", "response_parameters_bls")
        },
    ),
    Suite(
        f"{_PYTHON}/async_execute/concurrency_test.py",
        {name: _python(name) for name in ("async_execute_decouple", "async_execute_decouple_bls")},
    ),
    Suite(
        f"{_PYTHON}/request_rescheduling/grpc_endpoint_test.py",
        {
            name: _python(name)
            for name in (
                "bls_request_rescheduling",
                "request_rescheduling_addsub",
                "iterative_sequence",
                "wrong_return_type",
            )
        },
        ["--model-control-mode=explicit", "--load-model=*"],
    ),
    Suite(
        f"{_PYTHON}/ensemble/ensemble_test.py",
        {
            "ensemble": Model("python_models/ensemble", {}),
            "add_sub_1": _python("add_sub", {r"(?m)^name:.*": ""}),
            "add_sub_2": _python("add_sub", {r"(?m)^name:.*": ""}),
        },
        left_out={"test_ensemble_gpu": GPU},
    ),
    Suite(
        f"{_PYTHON}/model_control/model_control_test.py",
        {
            "identity_fp32": _python("identity_fp32"),
            "simple_identity_fp32": Model("python_models/simple_identity_fp32", {}),
        },
        ["--model-control-mode=explicit"],
    ),
    Suite(
        "L0_http_fuzz/fuzztest.py",
        {"simple": _SIMPLE},
        seconds=2 * 3600,
    ),
)
# Suites of the same list that run nothing here, and why.
NOT_RUN: Mapping[str, str] = {
    "L0_backend_fastertransformer": "needs a GPU and T5's weights: `invoke smoke` serves T5 on one",
    "L0_trace": TRACING,
    "L0_lifecycle": "its models are of other frameworks; test.sh starts a server for each test",
    "L0_shared_memory": "test.sh starts a server for each test, with models of ONNX",
    "L0_grpc/python_unit_test.py": "its models are of ONNX and custom backends",
}
