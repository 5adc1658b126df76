"""gRPC calls from a seed: messages with unlikely values, bytes that are none, HTTP/2 frames."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tritonclient.grpc import service_pb2

from testing import mutations
from testing.hostile import http_requests, models

SERVICE = "/inference.GRPCInferenceService/"
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _CONTINUATION = 0, 1, 3, 4, 9
_END_STREAM, _END_HEADERS = 1, 4
_NUMBERS = (0, 1, -1, 2, 7, 2**31 - 1, 2**31, -(2**31), 2**32, 2**62, 2**63 - 1, -(2**63))
_DESCRIPTION = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
METHODS = tuple(method.name for method in _DESCRIPTION.methods)
_OF_MODELS = ("ModelInfer", "ModelStreamInfer")


@dataclass(frozen=True)
class Call:
    """A call: serialized messages of a method, metadata, and when the client gives up, if it does.

    That is so many seconds after it has read so many answers.
    """

    seed: int
    kind: str
    method: str
    messages: Sequence[bytes] = field(repr=False)
    metadata: Sequence[tuple[str, str]] = ()
    cancel_after: float | None = None
    answers: int = 0

    @property
    def streams(self) -> bool:
        """Whether the method takes and gives streams."""
        return self.method == "ModelStreamInfer"


def call(seed: int, kinds: Sequence[str] = ()) -> Call:
    """Make the call of a seed, of one of these kinds (none: of any)."""
    rng = random.Random(seed)
    names = kinds or tuple(KINDS)
    kind = rng.choices(names, [KINDS[name][0] for name in names])[0]
    return KINDS[kind][1](seed, kind, rng)


def frames(seed: int) -> http_requests.Attempt:
    """Make bytes of HTTP/2 for one connection to the gRPC port: frames of a call, spoilt."""
    rng = random.Random(seed)
    body = _infer(rng).SerializeToString()
    prefixed = (
        struct.pack(">BI", rng.choice((0, 0, 1, 255)), rng.choice((len(body), 0, 2**31, 2**32 - 1))) + body
    )
    stream = rng.choice((1, 1, 1, 0, 2, 2**31 - 1))
    path = SERVICE + rng.choice((*METHODS, "Missing", "", "x" * 9000))
    fields = [
        (":method", rng.choice(("POST", "POST", "GET", ""))),
        (":scheme", "http"),
        (":path", path),
        (":authority", "server"),
        ("te", rng.choice(("trailers", "x"))),
        (
            "content-type",
            rng.choice(("application/grpc", "application/grpc+proto", "text/plain", "x" * 9000)),
        ),
        ("grpc-timeout", rng.choice(("1S", "0n", "99999999999H", "-1S", "", "x"))),
        ("grpc-encoding", rng.choice(("identity", "gzip", "x"))),
    ]
    rng.shuffle(fields) if rng.random() < 0.1 else None
    head = b"".join(_literal(name, value) for name, value in fields[rng.choice((0, 0, 0, 1)) :])
    sent = [
        _frame(_SETTINGS, 0, 0, rng.randbytes(rng.choice((0, 0, 6, 5, 600)))),
        _frame(_HEADERS, rng.choice((_END_HEADERS, _END_HEADERS, 0)), stream, head),
        _frame(_CONTINUATION, 0, stream, rng.randbytes(20)) * rng.choice((0, 0, 0, 1, 5000)),
        _frame(_DATA, rng.choice((_END_STREAM, 0)), stream, prefixed[: rng.choice((len(prefixed), 3, 5, 0))]),
        *[_frame(_RESET, 0, number, b"\0\0\0\x08") for number in range(1, rng.choice((1, 1, 3, 2001)), 2)],
        *[
            _frame(rng.randrange(256), rng.randrange(256), stream, rng.randbytes(rng.choice((0, 4, 8, 100))))
            for _ in range(rng.choice((0, 0, 1, 5, 200)))
        ],
    ]
    content = _PREFACE + b"".join(sent)
    if rng.random() < 0.5:
        changed = bytearray(content)
        for _ in range(rng.choice((1, 2, 10))):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        content = bytes(changed)
    return http_requests.Attempt(seed, "frames", [content], rng.choice(("answer", "close", "reset")))


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _literal(name: str, value: str) -> bytes:
    """Encode a header as HPACK writes one that no table holds (RFC 7541, 6.2.2)."""
    return b"\0" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    content, rest = text.encode(), len(text) - 127
    if rest < 0:
        return bytes((len(content),)) + content
    length = bytearray((127,))
    while rest >= 128:
        length.append(rest % 128 + 128)
        rest //= 128
    return bytes((*length, rest)) + content


def _infer(rng: random.Random) -> Any:
    return infer(rng, rng.choice(models.NAMES))


def infer(rng: random.Random, model: str) -> Any:
    """Return a right request for inference, its tensors in one of both forms."""
    asked = service_pb2.ModelInferRequest(model_name=model, id="1")
    content = http_requests.infer(model, None if model == models.STEPS else rng.choice((1, 2)))
    in_contents = rng.random() < 0.5
    for tensor in content["inputs"]:
        data = tensor["data"]
        sent = asked.inputs.add(name=tensor["name"], datatype=tensor["datatype"], shape=tensor["shape"])
        if tensor["datatype"] == "BYTES":
            raw = b"".join(struct.pack("<I", len(text)) + text.encode() for text in data)
        else:
            raw = struct.pack(f"<{len(data)}{'i' if tensor['datatype'] == 'INT32' else 'f'}", *data)
        if not in_contents:
            asked.raw_input_contents.append(raw)
        elif tensor["datatype"] == "BYTES":
            sent.contents.bytes_contents.extend(text.encode() for text in data)
        else:
            place = "int_contents" if tensor["datatype"] == "INT32" else "fp32_contents"
            getattr(sent.contents, place).extend(data)
    return asked


def _parameter(rng: random.Random, parameters: Any, name: str) -> None:
    kind = rng.choice(("int64_param", "bool_param", "string_param", "double_param", "uint64_param", ""))
    values: dict[str, Any] = {
        "int64_param": rng.choice(_NUMBERS), "bool_param": True,
        "string_param": str(rng.choice(mutations.TEXTS)),
        "double_param": 1e308, "uint64_param": 2**64 - 1,
    }  # fmt: skip
    if kind:
        setattr(parameters[name], kind, values[kind])
    else:
        parameters[name].SetInParent()


def _spoil(rng: random.Random, asked: Any) -> Any:
    """Change what a request says, so that it still is a message."""
    names = (
        "sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output",
        "classification",
        "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset",
        "triton_enable_empty_final_response", "x",
    )  # fmt: skip
    for _ in range(rng.choice((1, 1, 2, 3))):
        action = rng.randrange(10)
        tensor = rng.choice(asked.inputs) if asked.inputs else asked.inputs.add()
        if action == 0:
            asked.model_name = rng.choice(http_requests.NAMES)
        elif action == 1:
            asked.model_version = rng.choice(http_requests.MODEL_VERSIONS)
        elif action == 2:
            del tensor.shape[:]
            tensor.shape.extend(rng.choice(_NUMBERS) for _ in range(rng.choice((0, 1, 2, 3, 30))))
        elif action == 3:
            tensor.datatype = rng.choice(
                ("", "BYTES", "INT32", "FP16", "BF16", "BOOL", "INT64", "FP64", "UINT8", "x")
            )
        elif action == 4:
            tensor.name = rng.choice((*models.INPUTS, "", "x", "a" * 9000))
        elif action == 5 and asked.raw_input_contents:
            asked.raw_input_contents[0] = rng.randbytes(rng.choice((0, 1, 3, 4, 5, 100, 100_000)))
        elif action == 6:
            asked.raw_input_contents.append(struct.pack("<I", rng.choice((0, 1, 2**31, 2**32 - 1))))
        elif action == 7:
            _parameter(rng, asked.parameters, rng.choice(names))
        elif action == 8:
            _parameter(rng, tensor.parameters, rng.choice(names))
        else:
            output = asked.outputs.add(name=rng.choice((*(f"OUT_{name}" for name in models.INPUTS), "x", "")))
            _parameter(rng, output.parameters, rng.choice(names))
    return asked


def _right(seed: int, kind: str, rng: random.Random) -> Call:
    return Call(seed, kind, rng.choice(_OF_MODELS), [_infer(rng).SerializeToString()])


def _messages(seed: int, kind: str, rng: random.Random) -> Call:
    sent = [_spoil(rng, _infer(rng)).SerializeToString() for _ in range(rng.choice((1, 1, 1, 3)))]
    method = rng.choice(_OF_MODELS)
    return Call(seed, kind, method, sent if method == "ModelStreamInfer" else sent[:1])


def _bytes(seed: int, kind: str, rng: random.Random) -> Call:
    """Bytes of a message with some changed, or of no message, to any method."""
    content = bytearray(_infer(rng).SerializeToString())
    for _ in range(rng.choice((1, 2, 10))):
        content[rng.randrange(len(content))] = rng.randrange(256)
    method = rng.choice((*METHODS, *_OF_MODELS, "Missing"))
    return Call(seed, kind, method, [bytes(content[: rng.choice((len(content), 0, 10))])])


def _other_methods(seed: int, kind: str, rng: random.Random) -> Call:
    """Every method, its fields filled by their types."""
    method = rng.choice([method for method in _DESCRIPTION.methods if method.name not in _OF_MODELS])
    asked = getattr(service_pb2, method.input_type.name)()
    for known in method.input_type.fields:
        if rng.random() < 0.3:
            continue
        if known.type == known.TYPE_STRING and not _repeated(known):
            setattr(
                asked,
                known.name,
                rng.choice((*http_requests.NAMES, *http_requests.FILES)).replace("\x00", "0"),
            )
        elif known.type == known.TYPE_BYTES:
            setattr(asked, known.name, rng.randbytes(rng.choice((0, 64, 5000))))
        elif known.type in (known.TYPE_UINT64, known.TYPE_INT64):
            numbers = [number for number in _NUMBERS if number >= 0 or known.type == known.TYPE_INT64]
            setattr(asked, known.name, rng.choice([number for number in numbers if number < 2**63]))
        elif known.name == "parameters":
            _load_parameters(rng, asked.parameters)
        elif known.name == "settings":
            _settings(rng, asked, method.name)
    return Call(seed, kind, method.name, [asked.SerializeToString()])


def _repeated(known: Any) -> bool:
    return bool(known.is_repeated) if hasattr(known, "is_repeated") else known.label == known.LABEL_REPEATED


def _load_parameters(rng: random.Random, parameters: Any) -> None:
    parameters["config"].string_param = rng.choice(("{}", "{", '{"backend":"python"}', "[" * 100_000))
    parameters[f"file:{rng.choice(http_requests.FILES)}".replace("\x00", "0")].bytes_param = b"x"
    parameters["unload_dependents"].bool_param = True


def _settings(rng: random.Random, asked: Any, method: str) -> None:
    if method == "TraceSetting":
        for name in ("trace_rate", "trace_count", "log_frequency", "trace_level", "trace_file"):
            values = [rng.choice(http_requests.NUMBERS) for _ in range(rng.choice((0, 1, 2)))]
            asked.settings[name].value.extend(values)
        return
    for name in ("log_file", "log_info", "log_verbose_level", "log_format"):
        kind = rng.choice(("bool_param", "uint32_param", "string_param"))
        value: Any = {
            "bool_param": True,
            "uint32_param": 0,
            "string_param": rng.choice(("", "default", "x")),
        }[kind]
        setattr(asked.settings[name], kind, value)


def _metadata(seed: int, kind: str, rng: random.Random) -> Call:
    names = ("x", "x-bin", "user-agent", "grpc-accept-encoding", "triton-x", "traceparent", "content-length")
    metadata = [
        (rng.choice(names), "9" * rng.choice((0, 1, 30, 3000))) for _ in range(rng.choice((1, 3, 30)))
    ]
    # Text of ASCII, but bytes for names that end with -bin.
    fitting = [(name, value.encode() if name.endswith("-bin") else value) for name, value in metadata]
    return Call(seed, kind, rng.choice(METHODS), [_infer(rng).SerializeToString()], fitting)  # type: ignore[arg-type]


def _cancelled(seed: int, kind: str, rng: random.Random) -> Call:
    """A client that gives up while its answers are on the way."""
    sent = [_infer(rng).SerializeToString() for _ in range(rng.choice((1, 3, 10)))]
    method = rng.choice(_OF_MODELS)
    messages = sent if method == "ModelStreamInfer" else sent[:1]
    return Call(seed, kind, method, messages, cancel_after=rng.choice((0, 0.0005, 0.002, 0.01)))


def _left(seed: int, kind: str, rng: random.Random) -> Call:
    """A client that leaves a stream after some of its many answers, some of them large."""
    sent = []
    for _ in range(rng.choice((1, 1, 3, 10))):
        asked = service_pb2.ModelInferRequest(model_name=models.STEPS, id="1")
        steps = asked.inputs.add(name="WHOLE", datatype="INT32", shape=[1])
        steps.contents.int_contents.append(rng.choice((1, 5, models.MAX_STEPS)))
        text = asked.inputs.add(name="TEXT", datatype="BYTES", shape=[1])
        text.contents.bytes_contents.append(b"a" * rng.choice((1, 10, 10_000)))
        sent.append(asked.SerializeToString())
    if rng.random() < 0.2:
        # An error of this stream closes it, and is its status.
        sent.insert(rng.randrange(len(sent) + 1), _spoil(rng, _infer(rng)).SerializeToString())
    metadata = [("triton_grpc_error", "true")] if rng.random() < 0.3 else []
    wait, answers = rng.choice((0, 0, 0.0005, 0.001, 0.002, 0.01)), rng.choice((0, 0, 1, 2, 5, 19, 20, 21))
    return Call(seed, kind, "ModelStreamInfer", sent, metadata, cancel_after=wait, answers=answers)


CANCELLED, LEFT = "cancelled", "left"
KINDS: Mapping[str, tuple[int, Callable[[int, str, random.Random], Call]]] = {
    "right": (3, _right),
    "messages": (12, _messages),
    "bytes": (6, _bytes),
    "other methods": (8, _other_methods),
    "metadata": (3, _metadata),
    CANCELLED: (5, _cancelled),
    LEFT: (5, _left),
}
