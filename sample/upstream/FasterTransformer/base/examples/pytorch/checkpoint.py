"""Reads Hugging Face checkpoints and writes the files that FasterTransformer loads."""

import configparser
import json
import multiprocessing
from pathlib import Path

import numpy as np

DTYPES = {"F32": np.float32, "F16": np.float16}
FILE_TYPES = {"fp32": np.float32, "fp16": np.float16}
# After this question the start method counts as chosen, as it does once torch is imported.
START_METHOD = multiprocessing.get_start_method()


def read(folder):
    """The configuration and the tensors (by name) of a checkpoint with config.json and model.safetensors."""
    raw = (Path(folder) / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        values = np.frombuffer(raw[start + first : start + last], DTYPES[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"]).astype(np.float32)
    return json.loads((Path(folder) / "config.json").read_text()), tensors


def write(folder, section, settings, table, lm_head, layers, ranks, data_type="fp32", processes=1):
    """Write config.ini and the weights for `ranks` GPUs below `folder`; `layers` are [in, out].

    Row r of a layer goes to the rank that holds that part of the input, so each rank makes a partial sum.
    """
    target = Path(folder) / f"{ranks}-gpu"
    target.mkdir(parents=True)
    config = configparser.ConfigParser()
    config[section] = {
        **{key: str(value) for key, value in settings.items()},
        "vocab_size": str(len(table)),
        "num_layer": str(len(layers)),
        "tensor_para_size": str(ranks),
        "weight_data_type": data_type,
    }
    with (target / "config.ini").open("w") as file:
        config.write(file)
    jobs = [
        (target / "model.wte.bin", table, data_type),
        (target / "model.lm_head.weight.bin", lm_head, data_type),
    ]
    for layer, matrix in enumerate(layers):
        for rank, rows in enumerate(np.split(matrix, ranks)):
            jobs.append((target / f"model.layers.{layer}.mlp.dense_4h_to_h.weight.{rank}.bin", rows, data_type))
    with multiprocessing.Pool(processes) as pool:
        pool.map(save, jobs)
    print(f"{len(jobs)} files in {target}")


def save(job):
    path, matrix, data_type = job
    matrix.astype(FILE_TYPES[data_type]).tofile(path)
