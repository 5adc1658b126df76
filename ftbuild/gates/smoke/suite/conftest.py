"""Fixtures: one server per variant of a family, started when its first test needs it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftbuild.client import golden
from ftbuild.client import server_container as server
from ftbuild.client.connection import Client, Protocol, Unanswered
from ftbuild.client.golden import Expected, Row
from ftbuild.client.tensors import TensorSchema, Tokens
from ftbuild.engine import gpu
from ftbuild.errors import FtbuildError, SmokeError
from ftbuild.gates.smoke import job, junit, models
from ftbuild.gates.smoke.job import DTYPES, Job, Variant
from ftbuild.models import config_ini, config_pbtxt

JOB = pytest.StashKey[Job]()
# The models answer in milliseconds.
ANSWER_SECONDS = 20
PROTOCOLS: tuple[Protocol, ...] = ("http", "grpc")
# The driver must not hide wrong machine code by compiling PTX.
ENVIRONMENT = {"CUDA_DISABLE_PTX_JIT": "1"}
# Models are loaded as always, and can be unloaded: test_reload.py.
CONTROL = ("--model-control-mode=explicit", f"--load-model={config_pbtxt.MODEL}")


@dataclass
class Served:
    """A model of one family under test on a running server; `silent` once a request got no answer."""

    variant: Variant
    server: server.Server
    dialect: TensorSchema
    expected: Expected
    on_gpu: bool
    silent: bool = False

    @property
    def tolerance(self) -> float:
        """The allowed error of a log-probability, per token."""
        return golden.TOLERANCE[self.variant.dtype]

    @cached_property
    def clients(self) -> dict[Protocol, Client]:
        """A connection for each protocol."""
        return {protocol: self.connect(protocol) for protocol in PROTOCOLS}

    def connect(self, protocol: Protocol) -> Client:
        """Open one more connection, for a thread of its own."""
        return Client(getattr(self.server, protocol), protocol, seconds=ANSWER_SECONDS)

    def close(self) -> None:
        """End the connections."""
        for client in self.__dict__.pop("clients", {}).values():
            client.close()

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
        asked = self.dialect.request(prompts, length, **options)
        return (client or self.clients["http"]).infer(config_pbtxt.MODEL, asked)

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


def prompts(case: str) -> list[Tokens]:
    """Return the prompts of a case."""
    return list(golden.CASES[case]["prompts"])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--job", type=Path, required=True, help="file that `invoke smoke` wrote")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "variants(dtypes, tensor_para, decoupled): the ways of serving tested")
    config.stash[JOB] = job.read(config.getoption("--job"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "served" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("variants")
    options = dict(marker.kwargs) if marker else {}
    dtypes = options.pop("dtypes", DTYPES)
    families = metafunc.config.stash[JOB].models
    variants = [Variant(family, dtype, **options) for family in families for dtype in dtypes]
    metafunc.parametrize("served", variants, indirect=True, ids=str, scope="session")


def pytest_runtest_setup(item: pytest.Function) -> None:
    """Note which variant a test is about, for the record; also of one that is skipped or fails at once."""
    item.user_properties.append((junit.SERVED, str(item.callspec.params["served"])))


@pytest.fixture(scope="session")
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    variant: Variant = request.param
    task = request.config.stash[JOB]
    if reason := task.lacks(variant):
        pytest.skip(reason)
    prepared = task.prepared / variant.family
    template = (prepared / models.CONFIG).read_text()
    weights = prepared / models.WEIGHTS / f"{variant.tensor_para}-gpu"
    text = config_pbtxt.fill_template(
        template,
        model=config_ini.read(weights),
        tensor_para=variant.tensor_para,
        data_type=variant.dtype,
        decoupled=variant.decoupled,
    )
    dialect = TensorSchema(task.models[variant.family].tensors, config_pbtxt.inputs(template))
    expected = golden.expected(prepared / models.ANSWERS)
    with tempfile.TemporaryDirectory(prefix="ftbuild-models-") as folder:
        config_pbtxt.write(Path(folder), text, weights)
        with start(task, variant, Path(folder)) as running:
            served = Served(variant, running, dialect, expected, on_gpu=task.style is not None)
            yield served
            served.close()


def start(task: Job, variant: Variant, folder: Path) -> AbstractContextManager[server.Server]:
    """Start the server of a variant, on exactly its GPUs, and without a compiler of PTX."""
    return server.serve(
        task.image,
        folder,
        devices=gpu.requests(task.style) if task.style else (),
        environment=_environment(task, variant),
        options=CONTROL,
    )


@pytest.fixture(autouse=True)
def answering(served: Served) -> None:
    """Fail at once after an unanswered request, as each further one would take as long."""
    if served.silent:
        raise SmokeError(
            "not asked, as an earlier request got no answer", hint="see the first failure of this variant"
        )


@pytest.fixture(params=PROTOCOLS)
def client(request: pytest.FixtureRequest, served: Served) -> Client:
    return served.clients[request.param]


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Note a failure's message and hint, for the record."""
    if call.excinfo is not None and isinstance(error := call.excinfo.value, FtbuildError):
        item.user_properties += [("what", error.what), ("hint", error.hint or "")]
        if isinstance(error, Unanswered) and isinstance(served := item.funcargs.get("served"), Served):  # type: ignore[attr-defined]
            served.silent = True


def _environment(task: Job, variant: Variant) -> dict[str, str]:
    """Return the environment that shows exactly the GPUs of the model.

    Others must divide evenly (BE v1.4 libfastertransformer.cc:379-392).
    """
    if task.style is None:
        return {}
    return {**ENVIRONMENT, "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(variant.tensor_para)))}
