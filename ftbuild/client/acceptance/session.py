"""A session of the acceptance test with one server."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ftbuild.client.acceptance.comparison import difference
from ftbuild.client.acceptance.options import AcceptanceOptions
from ftbuild.client.acceptance.report import AcceptanceReport
from ftbuild.client.connection import Client, Protocol
from ftbuild.client.model_metadata import ModelMetadata
from ftbuild.client.tensors import TensorSchema
from ftbuild.errors import SmokeError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
    Arrays = Mapping[str, Array]


class Session:
    """The connections to a server, its fastertransformer model, the options, and the report that grows."""

    def __init__(
        self, options: AcceptanceOptions, clients: Mapping[Protocol, Client], model: ModelMetadata
    ) -> None:
        """`clients` are those that can ask the model."""
        self.options = options
        self.clients = clients
        self.model = model
        self.report = AcceptanceReport()
        self.schema = TensorSchema(options.tensors, model.data_types)

    @property
    def any_client(self) -> Client:
        """One of the connections, for questions whose answer does not depend on the protocol."""
        return next(iter(self.clients.values()))

    def ask(self, client: Client, model: ModelMetadata, request: Arrays) -> Arrays:
        """Return the whole answer: of a streamed one the last response."""
        if not model.decoupled:
            return client.infer(model.name, request)
        responses = list(client.stream(model.name, request))
        if not responses:
            raise SmokeError(f"{model.name} streamed no response", where=client.address)
        return responses[-1]

    def timed(self, test: str, client: Client, model: ModelMetadata, request: Arrays) -> Arrays:
        """Return the answer, and add its seconds to the report."""
        start = time.perf_counter()
        outputs = self.ask(client, model, request)
        self.report.seconds[f"{test} {client.protocol}"].append(time.perf_counter() - start)
        return outputs

    def repeated(self, test: str, client: Client, model: ModelMetadata, request: Arrays) -> Iterator[Arrays]:
        """Yield a first answer, untimed as it may include set-up, then `options.requests` timed ones."""
        yield self.ask(client, model, request)
        for _ in range(self.options.requests):
            yield self.timed(test, client, model, request)

    def expect_equal(self, test: str, answers: Mapping[Protocol, Arrays], names: Sequence[str]) -> None:
        """Expect the same answer over both protocols, where both were tested."""
        if len(answers) == 2:
            wrong = difference(answers["http"], answers["grpc"], names)
            self.report.expect(test, "HTTP and gRPC equal", wrong)
