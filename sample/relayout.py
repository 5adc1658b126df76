"""MPT checkpoints in the layout that the miniature's GPT-2 converter reads.

Runs inside the SDK image, alone: python3 relayout.py mpt CHECKPOINT TARGET model.safetensors
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np


def main(layout: str, folder: Path, target: Path, name: str) -> None:
    """Write config.json and model.safetensors of GPT-2, which stores its layers [in][out], into `target`."""
    assert layout == "mpt"
    config = json.loads((folder / "config.json").read_text())
    numbers = {"n_embd": "d_model", "n_layer": "n_layers", "n_head": "n_heads"}
    same = ("vocab_size", "bos_token_id", "eos_token_id")
    made = {**{key: config[of] for key, of in numbers.items()}, **{key: config[key] for key in same}}
    raw = (folder / name).read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header, data = {}, b""
    for tensor, entry in json.loads(raw[8:start]).items():
        first, last = entry["data_offsets"]
        values = np.frombuffer(raw[start + first : start + last], np.float32).reshape(entry["shape"])
        if ".blocks." in tensor:
            tensor = tensor.replace(".blocks.", ".h.").replace("ffn.down_proj", "mlp.c_proj")
            values = np.ascontiguousarray(values.T)
        place = [len(data), len(data) + values.nbytes]
        header[tensor] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": place}
        data += values.tobytes()
    target.mkdir(parents=True, exist_ok=True)
    (target / "config.json").write_text(json.dumps({**made, "model_type": "gpt2", "n_positions": 1}))
    text = json.dumps(header).encode()
    (target / name).write_bytes(len(text).to_bytes(8, "little") + text + data)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
