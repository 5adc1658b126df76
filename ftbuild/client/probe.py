"""Ask each model of a server for one token: health that means answers.

    python3 probe.py ready|alive SECONDS [HTTP_PORT GRPC_PORT]

ends with 0 if every model has answered within SECONDS, or was busy with requests of others: it answered some,
while this one waited or found the queue full.
Otherwise with 1 and a reason. `ready` also wants the server's own readiness; `alive` lets models be loaded
and unloaded meanwhile. Models without FasterTransformer are not asked, as their inputs are unknown.

Runs alone, with Python 3.8 or later, which every image has for its Python backend; none has a gRPC library.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from typing import Any, NamedTuple

# Before Python 3.10 no TimeoutError.
_TimedOut = socket.timeout
BACKEND = "fastertransformer"
# Values that leave a greedy answer as it is. Ensembles of 22.03 must have all inputs (core r22.12
# ensemble_scheduler.cc:483 is newer).
NEUTRAL = {
    "runtime_top_k": 1,
    "runtime_top_p": 0.0,
    "beam_search_diversity_rate": 0.0,
    "temperature": 1.0,
    "len_penalty": 1.0,
    "repetition_penalty": 1.0,
    "random_seed": 0,
    "is_return_log_probs": True,
    "beam_width": 1,
}
# An ensemble that gives log-probabilities fails with "unexpected deadlock" unless its request asks for them,
# where the backend is upstream's (core r22.12 ensemble_scheduler.cc:1088; cure: patches/backend, 0200).
ALWAYS = ("runtime_top_k", "is_return_log_probs")
# One token after one token; sequence_length and max_output_len are T5's, those in capitals the ensembles'.
_SMALLEST = {
    **NEUTRAL,
    "input_ids": 0,
    "input_lengths": 1,
    "request_output_len": 1,
    "sequence_length": 1,
    "max_output_len": 1,
    "start_id": 0,
    "end_id": 0,
    "QUERY": "a",
    "REQUEST_OUTPUT_LEN": 1,
    "BAD_WORDS_DICT": "",
    "STOP_WORDS_DICT": "",
}
# Triton's data types by the letters of `struct`.
_PACKED = {"UINT32": "I", "INT32": "i", "UINT64": "Q", "INT64": "q", "FP32": "f", "BOOL": "?"}


# What servers say, and the backend, of a request that they have no time for (core r24.10 scheduler_utils.cc,
# dynamic_batch_scheduler.cc; patches/backend, in_flight_queue.h).
OVERLOADED = ("Exceeds maximum queue size", "Request timeout expired")
# Between two looks at a server whose queue is full.
_PAUSE_SECONDS = 0.5


class Failed(Exception):
    """The server does not answer as it should."""


class _Overloaded(Exception):
    """The server is at its limit with requests of others, and refuses more."""


class Tensor(NamedTuple):
    """An input with one value; `data_type` is Triton's name, BYTES for a text."""

    name: str
    data_type: str
    shape: Sequence[int]
    value: Any


class Question(NamedTuple):
    """A model to ask, the models whose finished requests show that it works, and its request.

    `streamed`: it answers token by token, which HTTP cannot carry.
    """

    name: str
    counted: Sequence[str]
    streamed: bool
    inputs: Sequence[Tensor]


class Server(NamedTuple):
    """Where a server listens, and for how many seconds one answer is waited for."""

    host: str
    http: int
    grpc: int
    seconds: float


def answering(kind: str, server: Server) -> list[str]:
    """Return the models that answer, or are busy; Failed when one does neither. `kind`: ready or alive."""
    try:
        return _answering(kind, server)
    except _TimedOut:
        raise Failed(f"no answer within {server.seconds:g} s") from None
    except (OSError, HTTPException, ValueError, LookupError) as broken:
        raise Failed(f"no answer: {broken!r}") from broken


def _answering(kind: str, server: Server) -> list[str]:
    status, _ = _http(server, "GET", f"/v2/health/{'ready' if kind == 'ready' else 'live'}")
    if status != 200:
        raise Failed(f"the server is not {kind}")
    index = _json(server, "POST", "/v2/repository/index", {"ready": True})
    if kind == "ready" and not index:
        # Triton is ready without any: an empty bucket or a wrong folder would get requests.
        raise Failed("it serves no model")
    configs = {entry["name"]: _json(server, "GET", f"/v2/models/{entry['name']}/config") for entry in index}
    models = list(requests(configs))
    with ThreadPoolExecutor(max(len(models), 1)) as pool:
        list(pool.map(lambda model: _ask(server, model), models))
    return [model.name for model in models]


def requests(configs: Mapping[str, Any]) -> Sequence[Question]:
    """Return what to ask: ensembles, and the backend's models that are in none of them."""
    bare = {name for name, config in configs.items() if config.get("backend") == BACKEND}
    questions = []
    for name, config in configs.items():
        steps = config.get("ensemble_scheduling", {}).get("step", [])
        inside = [step["model_name"] for step in steps if step["model_name"] in bare]
        meant = {tensor: part for step in reversed(steps) for part, tensor in step["input_map"].items()}
        inputs = _inputs(config, meant, [configs[model] for model in inside]) if inside else None
        if inputs is not None:
            streamed = any(_streams(configs[model]) for model in inside)
            questions.append(Question(name, [name, *inside], streamed, inputs))
    for name in sorted(bare.difference(*(model.counted for model in questions))):
        inputs = _inputs(configs[name], {}, [configs[name]])
        if inputs is not None:
            questions.append(Question(name, [name], _streams(configs[name]), inputs))
    return questions


def _streams(config: Mapping[str, Any]) -> bool:
    return bool(config.get("model_transaction_policy", {}).get("decoupled"))


def _inputs(config: Any, meant: Mapping[str, str], models: Sequence[Any]) -> Sequence[Tensor] | None:
    """Return a request for one token, None if an input that it must have is unknown.

    `meant` maps an ensemble's tensors to the inputs of its steps; `models` are those that give start_id and
    end_id, where a request must have them.
    """
    values = dict(_SMALLEST)
    for model in models:
        known = model.get("parameters", {})
        values.update({k: int(known[k]["string_value"]) for k in ("start_id", "end_id") if k in known})
    tensors = []
    for tensor in config["input"]:
        meaning = meant.get(tensor["name"], tensor["name"])
        data_type = tensor["data_type"].replace("TYPE_", "").replace("STRING", "BYTES")
        if tensor.get("optional") and meaning not in ALWAYS:
            continue
        if meaning not in values or data_type not in ("BYTES", *_PACKED):
            return None
        shape = [1] * (len(tensor["dims"]) + bool(config.get("max_batch_size")))
        tensors.append(Tensor(tensor["name"], data_type, shape, values[meaning]))
    return tensors


def _ask(server: Server, model: Question) -> None:
    before, deadline = _answer_count(server, model), time.monotonic() + server.seconds
    try:
        (_ask_grpc if model.streamed else _ask_http)(server, model)
        return
    except _TimedOut:
        if _answer_count(server, model) > before:
            return
    except _Overloaded:
        while time.monotonic() < deadline:
            if _answer_count(server, model) > before:
                return
            time.sleep(_PAUSE_SECONDS)
    raise Failed(f"{model.name} answered no request within {server.seconds:g} s")


def _answer_count(server: Server, model: Question) -> int:
    """Return how many requests these models have computed so far; refused requests do not count."""
    models = _json(server, "GET", "/v2/models/stats")["model_stats"]
    counts = [entry["inference_stats"] for entry in models if entry["name"] in model.counted]
    return sum(int(stats["success"].get("count", 0)) for stats in counts)


def _refusal(what: str, answer: bytes) -> Exception:
    """Return what an error of the server means; `what` says how it came."""
    excerpt = answer[:300].decode("utf-8", "replace")
    return _Overloaded() if any(words in excerpt for words in OVERLOADED) else Failed(f"{what}: {excerpt}")


def _ask_http(server: Server, model: Question) -> None:
    listed = [
        {"name": name, "datatype": data_type, "shape": shape, "data": [value]}
        for name, data_type, shape, value in model.inputs
    ]
    status, answer = _http(server, "POST", f"/v2/models/{model.name}/infer", {"inputs": listed})
    if status != 200:
        raise _refusal(f"{model.name} answers {status}", answer)


def _json(server: Server, method: str, path: str, body: Any = None) -> Any:
    status, answer = _http(server, method, path, body)
    if status != 200:
        raise Failed(f"{path}: {status} {answer[:300].decode('utf-8', 'replace')}")
    return json.loads(answer)


def _http(server: Server, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    connection = HTTPConnection(server.host, server.http, timeout=server.seconds)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


# gRPC by hand: one request on one stream of HTTP/2 (RFC 9113), the fields of the messages by number
# (Triton's grpc_service.proto).
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_STREAM = 1
_HEADER_FIELDS = {
    ":method": "POST",
    ":scheme": "http",
    ":path": "/inference.GRPCInferenceService/ModelStreamInfer",
    ":authority": "localhost",
    "content-type": "application/grpc",
    "te": "trailers",
}


def _ask_grpc(server: Server, model: Question) -> None:
    deadline = time.monotonic() + server.seconds
    message = _message(model)
    # Literal fields without indexing (RFC 7541, 6.2.2); all are shorter than 127 bytes.
    fields = b"".join(b"\0" + _short(name) + _short(value) for name, value in _HEADER_FIELDS.items())
    with socket.create_connection((server.host, server.grpc), server.seconds) as connection:
        connection.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + _frame(_SETTINGS, 0, 0, b"")
            + _frame(_HEADERS, _END_HEADERS, _STREAM, fields)
            + _frame(_DATA, _END_STREAM, _STREAM, struct.pack(">BI", 0, len(message)) + message)
        )
        answer, ended = b"", False
        while not ended:
            kind, flags, stream, content = _read_frame(connection, deadline)
            if kind in (_SETTINGS, _PING) and not flags & _ACK:
                connection.sendall(_frame(kind, _ACK, 0, content if kind == _PING else b""))
            elif kind == _DATA and stream == _STREAM:
                answer += content
            ended = kind in (_RESET, _GOAWAY) or (kind in (_DATA, _HEADERS) and bool(flags & _END_STREAM))
    # A ModelStreamInferResponse begins with its field 1, an error, or 2, a response.
    if answer[5:6] != b"\x12":
        raise _refusal(f"{model.name} streams no response", answer[5:])


def _message(model: Question) -> bytes:
    """Return a ModelInferRequest."""
    parts = [_field(1, model.name.encode())]
    for name, data_type, shape, _ in model.inputs:
        parts.append(
            _field(5, _field(1, name.encode()) + _field(2, data_type.encode()) + _field(3, bytes(shape)))
        )
    for _, data_type, _, value in model.inputs:
        if data_type == "BYTES":
            raw = struct.pack("<I", len(value)) + value.encode()
        else:
            raw = struct.pack("<" + _PACKED[data_type], value)
        parts.append(_field(7, raw))
    return b"".join(parts)


def _field(number: int, content: bytes) -> bytes:
    size, length = b"", len(content)
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + content


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream) + content


def _read_frame(connection: socket.socket, deadline: float) -> tuple[int, int, int, bytes]:
    head = _read(connection, 9, deadline)
    length = int.from_bytes(head[:3], "big")
    kind, flags, stream = struct.unpack(">BBI", head[3:])
    return kind, flags, stream, _read(connection, length, deadline)


def _read(connection: socket.socket, length: int, deadline: float) -> bytes:
    content = b""
    while len(content) < length:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        chunk = connection.recv(length - len(content))
        if not chunk:
            raise Failed("the gRPC endpoint closed the connection")
        content += chunk
    return content


if __name__ == "__main__":
    http, grpc = (int(port) for port in sys.argv[3:5] or ("8000", "8001"))
    try:
        print("answers:", *answering(sys.argv[1], Server("127.0.0.1", http, grpc, float(sys.argv[2]))))
    except Failed as failure:
        sys.exit(str(failure))
