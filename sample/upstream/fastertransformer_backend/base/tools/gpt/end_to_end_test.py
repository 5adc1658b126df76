"""Text in, text out: preprocessing, fastertransformer and postprocessing one by one, then the ensemble."""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from utils.infer import infer

parser = argparse.ArgumentParser()
parser.add_argument("-u", "--url", default="localhost:8000")
parser.add_argument("--model-variant", default="gpt", choices=["gpt", "bloom"])
parser.add_argument("--output-len", type=int, default=24)
flags = parser.parse_args()

query = np.array([["Michael, an American"], ["Data sources"]], dtype=object)
output_len = np.full([2, 1], flags.output_len, dtype=np.uint32)

prompt = infer(flags.url, "preprocessing", {"QUERY": query, "REQUEST_OUTPUT_LEN": output_len})
answer = infer(
    flags.url,
    "fastertransformer",
    {
        "input_ids": prompt["INPUT_ID"],
        "input_lengths": prompt["REQUEST_INPUT_LEN"],
        "request_output_len": prompt["REQUEST_OUTPUT_LEN"],
    },
)
inputs = {
    "TOKENS_BATCH": answer["output_ids"],
    "RESPONSE_INPUT_LENGTHS": answer.get("response_input_lengths"),
}
text = infer(flags.url, "postprocessing", inputs)
print(text["OUTPUT"])
ensemble = infer(flags.url, "ensemble", {"INPUT_0": query, "INPUT_1": output_len})
sys.exit(0 if (ensemble["OUTPUT_0"] == text["OUTPUT"]).all() else "the ensemble answers otherwise")
