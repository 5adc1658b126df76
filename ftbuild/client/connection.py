"""Connections to a Triton server over HTTP or gRPC (tritonclient)."""

from __future__ import annotations

import contextlib
import queue
import re
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from ftbuild.client.probe import OVERLOADED
from ftbuild.errors import ConfigError, SmokeError
from ftbuild.triton import POLL_SECONDS

if TYPE_CHECKING:
    import numpy as np

    Arrays = Mapping[str, np.ndarray[Any, Any]]

Protocol = Literal["http", "grpc"]
ANSWER_SECONDS = 60
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_SEE_LOG = "read the server's log; `invoke verify` and the labels show whether the image is for this GPU"


class Refused(SmokeError):
    """The server answered with an error, or not at all."""


class Unanswered(Refused):
    """No answer came in time, or there is no connection: the server may hang, or have ended."""


def checked(address: str, protocol: Protocol) -> str:
    """Return the `host:port` of an address, which may begin with `http://`; ConfigError when it has none."""
    bare = address.removeprefix(f"{protocol}://").removesuffix("/")
    match = _ADDRESS.fullmatch(bare)
    if match is None or not 0 < int(match[2]) < 65536:
        tls = (
            "; TLS ends at a proxy, which this test does not speak to" if address.startswith("https:") else ""
        )
        raise ConfigError(
            f"--{protocol} {address[:200]!r} is not an address", hint=f"host:port, the port up to 65535{tls}"
        )
    return bare


class Client:
    """A connection to one server; not to be shared between threads."""

    def __init__(self, address: str, protocol: Protocol, *, seconds: float = ANSWER_SECONDS) -> None:
        """`address` is `host:port` of the protocol's endpoint; an answer may take `seconds`."""
        self.address = address = checked(address, protocol)
        self.protocol = protocol
        self.seconds = seconds
        if protocol == "http":
            import tritonclient.http as library

            self._options = {"network_timeout": seconds, "connection_timeout": seconds}
            self._call: dict[str, Any] = {}
        else:
            import tritonclient.grpc as library

            self._options = {}
            self._call = {"client_timeout": seconds}
        self._library = library
        self._connection = library.InferenceServerClient(address, **self._options)

    def infer(self, model: str, inputs: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        """Return all outputs of one request; raise Refused with the server's message."""
        with _refusals(self.address):
            result = self._connection.infer(model, self._inputs(inputs), **self._call)
        response = result.get_response()
        outputs = response["outputs"] if isinstance(response, dict) else response.outputs
        names = [output["name"] if isinstance(output, dict) else output.name for output in outputs]
        return {name: result.as_numpy(name) for name in names}

    def stream(self, model: str, inputs: Arrays) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        """Yield the responses of a decoupled model to one request, up to the one marked final.

        Over gRPC only. Closing the iterator earlier ends the stream; servers before 23.06 mark none.
        """
        arrived: queue.Queue[tuple[Any, Any]] = queue.Queue()
        with _refusals(self.address):
            self._connection.start_stream(lambda result, error: arrived.put((result, error)))
            try:
                self._connection.async_stream_infer(
                    model, self._inputs(inputs), enable_empty_final_response=True
                )
                yield from _until_final(arrived, self.seconds)
            finally:
                self._connection.stop_stream()

    def config(self, model: str) -> dict[str, Any]:
        """Return a model's config.pbtxt as the server completed it; raise Refused for an unknown model."""
        grpc = {"as_json": True} if self.protocol == "grpc" else {}
        with _refusals(self.address):
            answer: dict[str, Any] = self._connection.get_model_config(model, **grpc)
        config: dict[str, Any] = answer["config"] if grpc else answer
        return config

    def ready(self, model: str) -> bool:
        """Return whether the server serves the model."""
        with _refusals(self.address):
            return bool(self._connection.is_model_ready(model))

    def load(self, model: str) -> None:
        """Load a model, on a server whose models are controlled by clients."""
        with _refusals(self.address):
            self._connection.load_model(model)

    def unload(self, model: str) -> None:
        """Unload a model, and return once its instances have ended; Unanswered if that takes too long."""
        deadline = time.monotonic() + self.seconds
        with _refusals(self.address):
            self._connection.unload_model(model)
            # The server answers at once.
            while not self._unloaded(model):
                if time.monotonic() > deadline:
                    raise Unanswered(f"{model} is still loaded after {self.seconds:g} s", where=self.address)
                time.sleep(POLL_SECONDS)

    def _unloaded(self, model: str) -> bool:
        index = self._connection.get_model_repository_index()
        entries = index if isinstance(index, list) else index.models
        return any(
            (entry["name"], entry.get("reason")) == (model, "unloaded")
            if isinstance(entry, dict)
            else (entry.name, entry.reason) == (model, "unloaded")
            for entry in entries
        )

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _inputs(self, arrays: Arrays) -> list[Any]:
        from tritonclient.utils import np_to_triton_dtype

        inputs = []
        for name, array in arrays.items():
            tensor = self._library.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
            tensor.set_data_from_numpy(array)
            inputs.append(tensor)
        return inputs


def _until_final(
    arrived: queue.Queue[tuple[Any, Any]], seconds: float
) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    while True:
        try:
            result, error = arrived.get(timeout=seconds)
        except queue.Empty as silent:
            raise Unanswered(f"no streamed response within {seconds:g} s") from silent
        if error is not None:
            raise error
        response = result.get_response()
        if response.outputs:
            yield {output.name: result.as_numpy(output.name) for output in response.outputs}
        if response.parameters["triton_final_response"].bool_param:
            return


@contextlib.contextmanager
def _refusals(address: str) -> Iterator[None]:
    """Turn errors of the library, and of the transport below it, into errors of ftbuild."""
    from tritonclient.utils import InferenceServerException

    try:
        yield
    except InferenceServerException as refused:
        silent = any(state in str(refused.status()) for state in ("DEADLINE_EXCEEDED", "UNAVAILABLE"))
        silent &= not any(words in str(refused.message()) for words in OVERLOADED)
        failure = Unanswered if silent else Refused
        raise failure(str(refused.message()), where=address, hint=_SEE_LOG) from refused
    except OSError as broken:
        what = f"no answer: {broken or type(broken).__name__}"
        raise Unanswered(what, where=address, hint=_SEE_LOG) from broken
