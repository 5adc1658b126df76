"""KServe's clients of the Open Inference Protocol, which Triton speaks itself: tokens in, tokens out."""

import asyncio
import json
import sys

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig

rest, grpc, model, prompt, length = sys.argv[1:6]


def tensor(name, values):
    array = np.array([values], np.uint32)
    made = InferInput(name, list(array.shape), "UINT32")
    made.set_data_from_numpy(array, binary_data=False)
    return made


def request(model):
    ids = list(prompt.encode())
    inputs = {"input_ids": ids, "input_lengths": [len(ids)], "request_output_len": [int(length)]}
    return InferRequest(model, [tensor(name, values) for name, values in inputs.items()])


def text(response):
    found = next(output for output in response.outputs if output.name == "output_ids")
    tokens = found.as_numpy().ravel().tolist()[len(prompt) :]
    return bytes(token for token in tokens if token < 256).decode()


async def asked():
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
        ready = await client.is_model_ready(rest, model)
        over_rest = text(await client.infer(rest, request(model), model_name=model))
    async with InferenceGRPCClient(grpc) as client:
        ready = ready and await client.is_model_ready(model)
        over_grpc = text(await client.infer(request(model)))
    assert ready
    return {"REST": over_rest, "gRPC": over_grpc}


print(json.dumps(asyncio.run(asked())))
