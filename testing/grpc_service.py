"""A service of Triton's gRPC protocol, written in Python, on a free port of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
from tritonclient.grpc import service_pb2_grpc


@contextmanager
def listening(service: service_pb2_grpc.GRPCInferenceServiceServicer, *, threads: int) -> Iterator[str]:
    """Answer with `service`, so many calls at a time; yield the address."""
    server = grpc.server(ThreadPoolExecutor(threads))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait(100)
