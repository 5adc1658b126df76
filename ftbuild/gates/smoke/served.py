"""A tiny model of one family on a running server, queried and compared with its reference."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ftbuild import triton
from ftbuild.client import golden
from ftbuild.client import server_container as server
from ftbuild.client.connection import Client, Protocol, Refused, Unanswered
from ftbuild.client.golden import Expected, Row
from ftbuild.client.tensors import TensorSchema, Tokens
from ftbuild.engine import gpu
from ftbuild.errors import SmokeError
from ftbuild.gates.smoke import models, spoiled
from ftbuild.gates.smoke.job import INT8, Job, Variant
from ftbuild.models import config_ini, config_pbtxt
from ftbuild.models.config_pbtxt import Limits
from ftbuild.models.gpu_memory import COMPUTES_INT8

if TYPE_CHECKING:
    import numpy as np

Outputs = Mapping[str, "np.ndarray[Any, Any]"]
# The models answer in milliseconds.
ANSWER_SECONDS = 20
PROTOCOLS: tuple[Protocol, ...] = ("http", "grpc")
# Of a sum of log-probabilities, which the size of a batch rounds differently.
LOG_PROB_ERROR = 1e-3
# The driver must not hide wrong machine code by compiling PTX.
ENVIRONMENT = {"CUDA_DISABLE_PTX_JIT": "1"}
# Models are loaded as always, and can be unloaded: suite/test_reload.py.
CONTROL = ("--model-control-mode=explicit", f"--load-model={config_pbtxt.MODEL}")


@dataclass
class Connected:
    """A variant under test on a running server; `silent` once a request got no answer."""

    variant: Variant
    server: server.Server
    task: Job
    silent: bool = field(default=False, kw_only=True)

    @property
    def on_gpu(self) -> bool:
        """Whether it computes on GPUs."""
        return self.task.style is not None

    @cached_property
    def clients(self) -> dict[Protocol, Client]:
        """A connection for each protocol."""
        return {protocol: self.connect(protocol) for protocol in PROTOCOLS}

    def connect(self, protocol: Protocol, seconds: float = ANSWER_SECONDS) -> Client:
        """Open one more connection, for a thread of its own, which waits some seconds for an answer."""
        return Client(getattr(self.server, protocol), protocol, seconds=seconds)

    def gpu_memory(self) -> int:
        """Return the bytes in use on the first of its GPUs; 0 without one, or if unknown.

        Those of the server alone where the driver reports them, else of all processes there. Raises
        SmokeError where the driver reported them before, but no longer does.
        """
        if not self.on_gpu:
            return 0
        container, device = self.server.container.get_wrapped_container(), self.task.devices(self.variant)[0]
        if not self.task.tells_processes:
            return gpu.memory_used(container, device) or 0
        if (own := gpu.own_memory(container, device)) is None:
            raise SmokeError(
                f"NVML does not tell the memory that {self.variant} has on GPU {device}",
                hint="does the server still run? With `tells_processes` false in smoke-job.json the suite "
                "reads the memory of all processes",
            )
        return own

    def close(self) -> None:
        """End the connections."""
        for client in self.__dict__.pop("clients", {}).values():
            client.close()


class Numbers(NamedTuple):
    """How often a test does something: on one GPU, with a model split over several, and without any.

    A split model has its GPUs alone, so that all others wait; without a GPU only the way of a test is tested.
    """

    on_gpu: int
    over_gpus: int
    on_cpu: int

    def at(self, served: Connected) -> int:
        """Return the one for a variant."""
        if not served.on_gpu:
            return self.on_cpu
        return self.over_gpus if served.variant.parts > 1 else self.on_gpu


@dataclass
class Served(Connected):
    """A model of one family that answers with tokens."""

    dialect: TensorSchema
    expected: Expected

    @property
    def searches_with_beams(self) -> bool:
        """Whether the model takes a width of beams, and its image is built with them."""
        return self.dialect.takes("beam_width") and "beams" not in self.task.left_out.features

    @property
    def tolerance(self) -> float:
        """The allowed error of a log-probability, per token."""
        return golden.TOLERANCE[self.variant.dtype]

    def ask(
        self,
        prompts: list[Tokens],
        length: int = golden.LENGTH,
        *,
        client: Client | None = None,
        **options: Any,
    ) -> list[list[int]]:
        """Return the answers to a batch of prompts, over HTTP by default."""
        outputs = self.outputs(prompts, length, client=client, **options)
        return self.dialect.answers(outputs, prompts, length, self.expected.end_id)

    def outputs(
        self,
        prompts: list[Tokens],
        length: int = golden.LENGTH,
        *,
        client: Client | None = None,
        **options: Any,
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Return the answer's tensors."""
        request = self.dialect.request(prompts, length, **options)
        return (client or self.clients["http"]).infer(config_pbtxt.MODEL, request)

    def refuses_an_unknown_token(
        self, client: Client, prompts: list[Tokens], length: int, **options: Any
    ) -> bool:
        """Return whether a request is refused, whose tokens are all outside the vocabulary.

        Raises Unanswered without an answer.
        """
        beyond: list[Tokens] = [[self.expected.vocab_size] * len(prompt) for prompt in prompts]
        try:
            self.outputs(beyond, length, client=client, **options)
        except Unanswered:
            raise
        except Refused:
            return True
        return False

    def check(self, case: str, answers: list[list[int]]) -> None:
        """Raise SmokeError unless the answers are those of the reference."""
        rows = self.expected.cases[case]
        wrong = [
            f"prompt {number + 1}: {difference}"
            for number, (row, tokens) in enumerate(zip(rows, answers, strict=True))
            if (difference := golden.mismatch(row, tokens, self.tolerance))
        ]
        if wrong:
            raise SmokeError(
                "\n".join([f"{self.variant} answers {len(wrong)} of {len(rows)} prompts wrong", *wrong]),
                hint="a kernel, the converter or a patch is wrong: does it show on other SMs, in fp32? "
                "Checkpoint, weights and the reference's answers lie in the cell's work folder, in smoke/",
            )

    def row(self, case: str = "one") -> Row:
        """Return the reference's answer to a case of one prompt."""
        return self.expected.cases[case][0]


def unlike(got: Outputs, alone: Outputs, *, exact: bool) -> str | None:
    """Return in what outputs differ from those of the same request alone, or None.

    Names and shapes must be the same; with `exact` the values, too, where floats may be rounded.
    """
    if set(got) != set(alone):
        return f"{sorted(got)} came, alone {sorted(alone)}"
    for name, values in alone.items():
        same = got[name].shape == values.shape
        if same and exact:
            error = LOG_PROB_ERROR if values.dtype.kind == "f" else 0
            same = bool((abs(got[name].astype(float) - values.astype(float)) <= error).all())
        if not same:
            return f"{name} is {got[name].tolist()}, alone {values.tolist()}"
    return None


def prompts(case: str) -> list[Tokens]:
    """Return the prompts of a case."""
    return list(golden.CASES[case]["prompts"])


@contextlib.contextmanager
def serving(
    task: Job,
    variant: Variant,
    limits: Limits | None = None,
    environment: Mapping[str, str] | None = None,
    *,
    options: Sequence[str] = CONTROL,
    neighbours: Callable[[Path], object] | None = None,
) -> Iterator[Served]:
    """Serve a variant on exactly its GPUs, and without a compiler of PTX.

    `options` follow the server's command; `neighbours` writes further models into the repository.
    Raises SmokeError when the server does not get ready.
    """
    prepared = task.prepared / variant.model
    int8 = variant.dtype == INT8
    template = task.template(variant)
    weights = task.weights(variant)
    text = config_pbtxt.fill_template(
        template,
        model=config_ini.read(weights),
        tensor_para=variant.tensor_para,
        pipeline_para=variant.pipeline_para,
        data_type=COMPUTES_INT8 if int8 else variant.dtype,
        int8=int8,
        decoupled=variant.decoupled,
        instances=variant.instances,
        limits=limits,
    )
    tensors = task.models[variant.model].tensors
    assert tensors
    dialect = TensorSchema(tensors, config_pbtxt.inputs(template))
    expected = golden.expected(prepared / (models.INT8_ANSWERS if int8 else models.ANSWERS))
    with tempfile.TemporaryDirectory(prefix="ftbuild-models-") as folder:
        config_pbtxt.write(Path(folder), text, weights)
        if task.style is not None:
            spoiled.write(Path(folder), text, weights)
        if neighbours is not None:
            neighbours(Path(folder))
        with start(task, variant, Path(folder), options, environment) as running:
            made = Served(variant, running, task, dialect, expected)
            yield made
            made.close()


def start(
    task: Job,
    variant: Variant,
    folder: Path,
    options: Sequence[str] = CONTROL,
    environment: Mapping[str, str] | None = None,
) -> AbstractContextManager[server.Server]:
    """Start the server of a variant on the model repository `folder`."""
    return server.serve(
        task.image,
        folder,
        devices=gpu.requests(task.style) if task.style else (),
        environment={**_environment(task, variant), **(environment or {})},
        options=options,
    )


def _environment(task: Job, variant: Variant) -> dict[str, str]:
    """Return the environment of `invoke serve` that shows exactly the GPUs of the model.

    Others must divide evenly (BE v1.4 libfastertransformer.cc:379-392).
    """
    if task.style is None:
        return {}
    visible = ",".join(map(str, task.devices(variant)))
    return {**ENVIRONMENT, **triton.launching(variant.pipeline_para), "CUDA_VISIBLE_DEVICES": visible}
