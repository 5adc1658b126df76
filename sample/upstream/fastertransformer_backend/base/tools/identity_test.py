"""Send fixed tokens to the model `fastertransformer` and print what comes back."""

import argparse

import numpy as np

from utils.infer import infer

parser = argparse.ArgumentParser()
parser.add_argument("-u", "--url", default="localhost:8000")
parser.add_argument("-b", "--batch-size", type=int, default=8)
parser.add_argument("--output-len", type=int, default=24)
flags = parser.parse_args()

column = np.ones([flags.batch_size, 1])
outputs = infer(
    flags.url,
    "fastertransformer",
    {
        "input_ids": (np.array([9, 8, 7, 6, 5]) * column).astype(np.uint32),
        "input_lengths": (5 * column).astype(np.uint32),
        "request_output_len": (flags.output_len * column).astype(np.uint32),
        "is_return_log_probs": column.astype(np.bool),
    },
)
for name, array in outputs.items():
    print(name, array.shape, *array.reshape(flags.batch_size, -1)[0])
