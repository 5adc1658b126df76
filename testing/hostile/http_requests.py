"""Raw HTTP requests from a seed: from plausible mistakes to what only an attacker sends."""

from __future__ import annotations

import functools
import gzip
import json
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from testing import mutations
from testing.hostile import models

End = Literal["answer", "close", "reset"]
Headers = list[tuple[str, str]]
# No more than this is ever sent at once, so that a campaign loads a server by what it says, not by its size.
MAX_BYTES = 6 * 2**20
NUMBERS = (
    "", " ", "0", "-0", "1", "-1", "+1", "00012", "1.5", "1e3", "0x10", "abc", "1 2", "1,1", "2147483647",
    "2147483648",
    "-2147483649", "4294967295", "4294967296", "9223372036854775807", "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616", "99999999999", "-99999999999", "9" * 21, "9" * 400, "nan", "inf", "\x0b1",
    "\u0661",
)  # fmt: skip
_VALUES: Sequence[Any] = (0, 1, -1, True, "1", 2**31, 2**63, 2**64 - 1, 1.5, None, [], {})
_METHODS = (
    "GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH", "PROPFIND", "MKCOL",
    "LOCK",
    "get", "PRI", "", "A" * 40, "POST\t", "\x00GET",
)  # fmt: skip
_VERSIONS = (
    "HTTP/1.1",
    "HTTP/1.0",
    "HTTP/0.9",
    "HTTP/2.0",
    "HTTP/9.9",
    "HTTP/11.1",
    "HTTP/",
    "",
    "HTTPS/1.1",
    "http/1.1",
)
_CONTENT_TYPES = (
    "application/json",
    "application/octet-stream",
    "multipart/form-data; boundary=x",
    "text/plain",
    "x" * 9000,
)
_WEIGHTS = ("1", "0", "0.5", "-1", "1e400", "1e-400", "nan", "inf", "", "x", "9" * 400)
_ENDPOINTS = (
    "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/stats", "/v2/logging", "/v2/trace/setting",
    "/v2/repository/index", "/v2/systemsharedmemory/status", "/v2/cudasharedmemory/status", "/metrics", "/",
    "/favicon.ico",
)  # fmt: skip
_OF_MODELS = (
    "",
    "/ready",
    "/config",
    "/stats",
    "/infer",
    "/generate",
    "/generate_stream",
    "/trace/setting",
    "/x",
)
NAMES = (
    *models.NAMES, "missing", "..", "%2e%2e", "%00", "%", "a" * 300, "a" * 9000, "é", "a b", "a?b", "a#b",
    "{}", "-1", "",
)  # fmt: skip
MODEL_VERSIONS = ("1", "0", "-1", "2", "99999999999999999999", "9223372036854775808", "1.0", "", "abc")
FILES = ("/tmp/x", "/etc/passwd", "../../x", "", "x" * 5000, "/dev/full", "\x00")


@dataclass(frozen=True)
class Attempt:
    """Bytes for one connection, sent part by part, and how the connection ends.

    `answer`: the client waits for an answer; `close`: it says that nothing more comes; `reset`: it is gone at
    once, without having read anything.
    """

    seed: int
    kind: str
    parts: Sequence[bytes] = field(repr=False)
    end: End = "answer"


def attempt(seed: int, kinds: Sequence[str] = ()) -> Attempt:
    """Make the attempt of a seed, of one of these kinds (none: of any)."""
    rng = random.Random(seed)
    names = kinds or tuple(KINDS)
    kind = rng.choices(names, [KINDS[name][0] for name in names])[0]
    parts, end = KINDS[kind][1](rng)
    return Attempt(seed, kind, _bounded(parts), end)


def infer(model: str = models.ECHO, batch: int | None = 1) -> dict[str, Any]:
    """Return a right request for inference, as JSON."""
    shape = [2] if batch is None else [batch, 2]
    count = 2 * (batch or 1)
    data: dict[str, list[Any]] = {"TEXT": ["a", "b"], "WHOLE": [3, 1], "REAL": [0.5, -1.5]}
    names = {models.STEPS: ("TEXT", "WHOLE"), models.TWICE: ("TEXT",)}.get(model, tuple(models.INPUTS))
    inputs = [
        {"name": name, "datatype": models.INPUTS[name][0], "shape": shape, "data": data[name] * (count // 2)}
        for name in names
    ]
    return {"id": "1", "inputs": inputs, "outputs": [{"name": f"OUT_{name}"} for name in names]}


def message(
    method: str,
    target: str,
    headers: Headers,
    body: bytes = b"",
    version: str = "HTTP/1.1",
    *,
    length: bool = True,
) -> bytes:
    """Put a request together; its length is told unless a header tells one, or none is wanted."""
    told = any(name.lower() in ("content-length", "transfer-encoding") for name, _ in headers)
    lines = [f"{method} {target} {version}", *(f"{name}: {value}" for name, value in headers)]
    if not any(name.lower() == "host" for name, _ in headers):
        lines.insert(1, "Host: server")
    if body and length and not told:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogatepass") + body


Made = tuple[list[bytes], End]


def _model_of(rng: random.Random) -> tuple[str, dict[str, Any]]:
    model = rng.choice(models.NAMES)
    return model, infer(model, None if model == models.STEPS else rng.choice((1, 1, 2, 8)))


def _infer_path(rng: random.Random, model: str) -> str:
    version = rng.choice(("", "", "", "/versions/1", f"/versions/{rng.choice(MODEL_VERSIONS)}"))
    return f"/v2/models/{model}{version}/infer"


def _dump(content: Any) -> bytes:
    return json.dumps(content).encode("utf-8", "surrogatepass")


def _spoilt_json(rng: random.Random) -> Made:
    model, content = _model_of(rng)
    body = _dump(mutations.data(rng, _with_options(rng, content)))
    if rng.random() < 0.1:
        body = mutations.raw(rng, body.decode())
    return [message("POST", _infer_path(rng, model), [], body)], "answer"


def _with_options(rng: random.Random, content: dict[str, Any]) -> dict[str, Any]:
    """Add parameters that the protocol knows, with likely and unlikely values."""
    names = (
        "sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output",
        "triton_x",
        "x" * 300, "",
    )  # fmt: skip
    if rng.random() < 0.5:
        content["parameters"] = {rng.choice(names): rng.choice(_VALUES) for _ in range(rng.choice((1, 2, 5)))}
    for place in rng.sample([*content["inputs"], *content["outputs"]], rng.choice((0, 1, 2))):
        option = rng.choice(("binary_data", "binary_data_size", "classification", "shared_memory_region"))
        place["parameters"] = {
            option: rng.choice(_VALUES),
            "shared_memory_byte_size": rng.choice(_VALUES),
            "shared_memory_offset": rng.choice(_VALUES),
        }
    if rng.random() < 0.2:
        rng.choice(content["inputs"])["shape"] = [
            rng.choice((0, 1, -1, 2**31, 2**62, 2**64 - 1)) for _ in range(rng.choice((0, 1, 2, 3, 30)))
        ]
    return content


def _binary(rng: random.Random) -> Made:
    """Tensors behind the JSON, with lengths that are right or not."""
    model, content = _model_of(rng)
    tail = b""
    for tensor in content["inputs"]:
        del tensor["data"]
        raw = rng.randbytes(rng.choice((0, 4, 8, 10, 16, 100)))
        tail += raw
        size: Any = rng.choice((len(raw), len(raw), len(raw) + 1, 0, 2**31, 2**63, 2**64 - 1, -1))
        tensor["parameters"] = {"binary_data_size": size}
    head = _dump(content)
    told = rng.choice((str(len(head)), str(len(head)), str(len(head) + 1), "0", *NUMBERS))
    return [
        message("POST", _infer_path(rng, model), [("Inference-Header-Content-Length", told)], head + tail)
    ], "answer"


def _number_headers(rng: random.Random) -> Made:
    """Headers whose value is a number, with any value."""
    model, content = _model_of(rng)
    names = (
        "Inference-Header-Content-Length",
        "Content-Length",
        "Inference-Header-Content-Length",
        "Keep-Alive",
    )
    headers = [(rng.choice(names), rng.choice(NUMBERS)) for _ in range(rng.choice((1, 1, 2)))]
    path = rng.choice((_infer_path(rng, model), f"/v2/models/{model}/generate", "/v2/repository/index"))
    return [message("POST", path, headers, _dump(content))], rng.choice(("answer", "close"))


def _odd_headers(rng: random.Random) -> Made:
    model, content = _model_of(rng)
    known = {
        "Content-Type": _CONTENT_TYPES,
        "Content-Encoding": ("gzip", "deflate", "identity", "br", "", "gzip, gzip", "x" * 5000),
        "Accept-Encoding": tuple(f"{name};q={weight}" for name in ("gzip", "deflate", "identity",
        "*") for weight in _WEIGHTS),
        "Transfer-Encoding": ("chunked", "Chunked", "chunked, chunked", "identity", "gzip, chunked", "x"),
        "Connection": ("close", "keep-alive", "Upgrade", "x", "close, keep-alive"),
        "Expect": ("100-continue", "x"),
        "Host": ("", "a:b:c", "[::1", "x" * 8000),
        "endpoint-load-metrics-format": ("text", "json", "x", ""),
        "traceparent": ("00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x"),
        "Upgrade": ("h2c", "websocket"),
    }  # fmt: skip
    headers: Headers = []
    for _ in range(rng.choice((1, 1, 2, 5, 30, 2000))):
        name = rng.choice(tuple(known))
        headers.append((name, rng.choice(known[name])))
    if rng.random() < 0.3:
        odd = ("", " ", "a b", "a" * 9000, "é", "x\x00y", ":", "x\r\n y", "\t")
        headers.append((rng.choice(odd), rng.choice(mutations.TEXTS)))
    return [message("POST", _infer_path(rng, model), headers, _dump(content))], rng.choice(
        ("answer", "close")
    )


def _chunks(rng: random.Random) -> Made:
    """A body in chunks, few or a great many, with sizes that are right or not."""
    model, content = _model_of(rng)
    body = _dump(content)
    step = rng.choice((1, 7, 100, len(body)))
    pieces = [body[at : at + step] for at in range(0, len(body), step)]
    blanks = rng.choice((1000, 65_535, 65_537, 200_000)) if rng.random() < 0.1 else 0
    encoded = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    encoded = b"1\r\n \r\n" * blanks + encoded + b"0\r\n\r\n"
    spoil = rng.randrange(10)
    if spoil == 0:
        encoded = (
            rng.choice((b"ffffffff", b"7fffffffffffffff", b"ffffffffffffffff", b"1" * 40, b"-1", b"g"))
            + b"\r\n"
            + encoded
        )
    elif spoil == 1:
        encoded = encoded.replace(b"\r\n", b";" + b"x" * rng.choice((1, 9000)) + b"\r\n", 1)
    elif spoil == 2:
        encoded = (
            encoded[:-2]
            + b"".join(b"T%d: x\r\n" % number for number in range(rng.choice((1, 3000))))
            + b"\r\n"
        )
    elif spoil == 3:
        encoded = encoded[: rng.randrange(len(encoded))]
    headers = [("Transfer-Encoding", "chunked")]
    if rng.random() < 0.2:
        headers.append(("Content-Length", rng.choice((str(len(body)), *NUMBERS))))
    return [message("POST", _infer_path(rng, model), headers), encoded], rng.choice(("answer", "close"))


@functools.cache
def _packed_blanks(mebibytes: int, name: str) -> bytes:
    """Return much in little: blanks before a JSON object, compressed."""
    return _pack(b" " * (mebibytes * 2**20) + b"{}", name)


def _pack(body: bytes, name: str) -> bytes:
    return gzip.compress(body, 6, mtime=0) if name == "gzip" else zlib.compress(body)


def _compressed(rng: random.Random) -> Made:
    model, content = _model_of(rng)
    body, name = _dump(content), rng.choice(("gzip", "deflate"))
    as_named = name if rng.random() < 0.9 else rng.choice(("gzip", "deflate"))
    bomb = rng.random() < 0.1
    packed = _packed_blanks(rng.choice((1, 70)), as_named) if bomb else _pack(body, as_named)
    if rng.random() < 0.3:
        packed = packed[: rng.randrange(len(packed))]
    if rng.random() < 0.2:
        packed = packed * 2
    headers = [("Content-Encoding", name), ("Accept-Encoding", rng.choice(("gzip", "deflate", "identity")))]
    if rng.random() < 0.3:
        headers.append(("Inference-Header-Content-Length", rng.choice((str(len(body)), *NUMBERS))))
    return [message("POST", _infer_path(rng, model), headers, packed)], "answer"


def _lines(rng: random.Random) -> Made:
    """Methods, paths and versions of the protocol."""
    name, version = rng.choice(NAMES), rng.choice(("", f"/versions/{rng.choice(MODEL_VERSIONS)}"))
    path = rng.choice((rng.choice(_ENDPOINTS), f"/v2/models/{name}{version}{rng.choice(_OF_MODELS)}"))
    odd = (
        "*",
        "",
        "http://server",
        f"http://server{path}",
        "//",
        "/" * 9000,
        "server:80",
        f"{path}?{'a=b&' * 900}",
        f"{path}#x",
        "http://",
        "http:///x",
        "/%zz",
    )
    target = rng.choice(odd) if rng.random() < 0.3 else path
    method = rng.choice(_METHODS) if rng.random() < 0.5 else rng.choice(("GET", "POST"))
    body = rng.choice((b"", b"{}", b"x" * 100))
    protocol = rng.choice(_VERSIONS) if rng.random() < 0.3 else "HTTP/1.1"
    return [message(method, target, [], body, protocol)], rng.choice(("answer", "close"))


def _deep(rng: random.Random) -> Made:
    """Nesting and numbers that a parser may stumble over."""
    model, content = _model_of(rng)
    depth = rng.choice((50, 99, 100, 101, 1000, 100_000))
    deep = rng.choice(
        (b"[" * depth + b"1" + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth, b"[" * depth)
    )
    numbers = (
        b"1e400",
        b"-1e400",
        b"1e-400",
        b"9" * 400,
        b"-9223372036854775809",
        b"NaN",
        b"Infinity",
        b"-0",
        b"01",
        b"1.",
    )
    put = deep if rng.random() < 0.5 else rng.choice(numbers)
    places = (
        b'"data"',
        b'"shape"',
        b'"name"',
        b'"datatype"',
        b'"id"',
        b'"inputs"',
        b'"outputs"',
        b'"parameters"',
    )
    place = rng.choice(places)
    body = _dump({**content, "parameters": {}, "id": 0})
    head, found, rest = body.partition(place + b": ")
    if not found:
        return [message("POST", _infer_path(rng, model), [], put)], "answer"
    # What stood there is kept behind another name.
    body = head + found + put + b', "kept": ' + rest
    path = rng.choice(
        (_infer_path(rng, model), f"/v2/models/{model}/generate", "/v2/logging", "/v2/trace/setting")
    )
    return [message("POST", path, [], body)], "answer"


def _memory(rng: random.Random) -> Made:
    kind = rng.choice(("system", "cuda"))
    region = rng.choice(("", "/region/r", "/region/" + rng.choice(NAMES)))
    what = rng.choice(("register", "unregister", "status", "x"))
    content: dict[str, Any] = {"key": rng.choice(("/k", "/psm", *FILES)), "offset": 0, "byte_size": 64}
    if kind == "cuda":
        content = {"raw_handle": {"b64": "QUJD" * rng.choice((1, 20, 3000))}, "device_id": 0, "byte_size": 64}
    body = _dump(mutations.data(rng, content))
    method = "GET" if what == "status" else "POST"
    return [message(method, f"/v2/{kind}sharedmemory{region}/{what}", [], body)], "answer"


def _repository(rng: random.Random) -> Made:
    name, owner = rng.choice(NAMES), rng.choice(("", "/x"))
    what = rng.choice(("/index", f"/models/{name}/load", f"/models/{name}/unload"))
    parameters: Any = {"unload_dependents": True, "ready": True}
    if what.endswith("load"):
        parameters["config"] = _dump({"name": name, "backend": "python", "max_batch_size": 2**31}).decode(
            "utf-8", "replace"
        )
        parameters["file:1/model.py"] = rng.choice(("eA==", "", "=", "é", "A" * 5000))
        parameters[f"file:{rng.choice(FILES)}"] = "eA=="
    body = _dump(mutations.data(rng, {"parameters": parameters, "ready": True}))
    return [message("POST", f"/v2/repository{owner}{what}", [], body)], "answer"


def _settings(rng: random.Random) -> Made:
    """Trace and log settings."""
    path = rng.choice(("/v2/logging", "/v2/trace/setting", f"/v2/models/{rng.choice(NAMES)}/trace/setting"))
    content: dict[str, Any] = {
        "log_file": rng.choice(FILES), "log_info": True, "log_verbose_level": 0, "log_format": "default",
    }  # fmt: skip
    if "trace" in path:
        content = {
            "trace_level": ["TIMESTAMPS"], "trace_rate": rng.choice(NUMBERS),
            "trace_count": rng.choice(NUMBERS),
            "log_frequency": rng.choice(NUMBERS), "trace_file": rng.choice(FILES), "trace_mode": "triton",
        }  # fmt: skip
    method = rng.choice(("GET", "POST", "POST", "POST"))
    return [message(method, path, [], _dump(mutations.data(rng, content)))], "answer"


def _generate(rng: random.Random) -> Made:
    model = rng.choice((models.STEPS, models.STEPS, *models.NAMES))
    content: dict[str, Any] = {"TEXT": "a", "WHOLE": rng.choice((0, 1, 2, 20, -1, 2**31)), "id": "x"}
    if rng.random() < 0.5:
        content["parameters"] = {"sequence_id": 1, "x": 1.5}
        content = mutations.data(rng, content)
    what = rng.choice(("generate", "generate_stream"))
    headers: Headers = (
        [("endpoint-load-metrics-format", rng.choice(("text", "json", "x")))] if rng.random() < 0.3 else []
    )
    sent = message("POST", f"/v2/models/{model}/{what}", headers, _dump(content))
    return [sent * rng.choice((1, 1, 1, 2, 10))], rng.choice(("answer", "answer", "close", "reset"))


def _garbage(rng: random.Random) -> Made:
    """A right request with bytes lost, doubled or changed, or none at all."""
    model, content = _model_of(rng)
    whole = message("POST", _infer_path(rng, model), [], _dump(content))
    if rng.random() < 0.5:
        return [mutations.raw(rng, whole.decode())], "close"
    changed = bytearray(whole)
    for _ in range(rng.choice((1, 2, 5, 50))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return [bytes(changed)], "close"


def _several(rng: random.Random) -> Made:
    """Requests one behind the other on a connection, in pieces, from a client that may be gone."""
    sent = b""
    for _ in range(rng.choice((2, 5, 20))):
        model, content = _model_of(rng)
        kinds = (
            message("GET", rng.choice(_ENDPOINTS), []),
            message("POST", _infer_path(rng, model), [], _dump(content)),
        )
        sent += rng.choice(kinds)
    at = rng.randrange(len(sent))
    return [sent[:at], sent[at:]], rng.choice(("answer", "close", "reset"))


def _vanishing(rng: random.Random) -> Made:
    """A client that asks rightly, and is gone before the answer."""
    model, content = _model_of(rng)
    return [message("POST", _infer_path(rng, model), [], _dump(content))], rng.choice(("reset", "close"))


def _right(rng: random.Random) -> Made:
    model, content = _model_of(rng)
    return [message("POST", f"/v2/models/{model}/infer", [], _dump(content))], "answer"


KINDS: Mapping[str, tuple[int, Callable[[random.Random], Made]]] = {
    "right": (3, _right),
    "JSON": (12, _spoilt_json),
    "binary tensors": (8, _binary),
    "numbers in headers": (8, _number_headers),
    "headers": (8, _odd_headers),
    "chunks": (8, _chunks),
    "compression": (6, _compressed),
    "methods and paths": (12, _lines),
    "depth and numbers": (6, _deep),
    "shared memory": (5, _memory),
    "repository": (5, _repository),
    "trace and log": (5, _settings),
    "generate": (8, _generate),
    "garbage": (8, _garbage),
    "several on a connection": (4, _several),
    "gone before the answer": (4, _vanishing),
}


def _bounded(parts: Sequence[bytes]) -> Sequence[bytes]:
    return [part[:MAX_BYTES] for part in parts]
