"""Send fixed tokens twice and compare the answers."""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from utils.infer import infer

parser = argparse.ArgumentParser()
parser.add_argument("-u", "--url", default="localhost:8000")
flags = parser.parse_args()

column = np.ones([2, 1])
inputs = {
    "input_ids": (np.array([9, 8, 7]) * column).astype(np.uint32),
    "input_lengths": (3 * column).astype(np.uint32),
    "request_output_len": (8 * column).astype(np.uint32),
    "is_return_log_probs": column.astype(np.bool),
}
first, second = (infer(flags.url, "fastertransformer", inputs)["output_ids"] for _ in range(2))
print(first)
sys.exit(0 if (first == second).all() else "two answers to the same question")
