"""Triton's HTTP/JSON protocol in a few lines."""

import json
import urllib.request

import numpy as np

TYPES = {"uint32": "UINT32", "int32": "INT32", "float32": "FP32", "bool": "BOOL", "object": "BYTES"}


def infer(url, model, tensors):
    """Send the arrays in `tensors` to `model`; return its outputs as arrays, by name."""
    inputs = [
        {
            "name": name,
            "shape": array.shape,
            "datatype": TYPES[array.dtype.name],
            "data": array.ravel().tolist(),
        }
        for name, array in tensors.items()
    ]
    request = urllib.request.Request(
        f"http://{url}/v2/models/{model}/infer", json.dumps({"inputs": inputs}).encode()
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        outputs = json.load(response)["outputs"]
    names = {datatype: name for name, datatype in TYPES.items()}
    return {
        output["name"]: np.array(output["data"], names[output["datatype"]]).reshape(output["shape"])
        for output in outputs
    }
