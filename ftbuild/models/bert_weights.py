"""BERT of a Hugging Face checkpoint, as the weights that FasterTransformer loads, and its embedding tables.

Runs inside the SDK image, with checkpoint_tensors.py beside it:
python3 bert_weights.py CHECKPOINT TARGET --gpus N --dtype fp16|fp32 WEIGHT_FILE...

FasterTransformer's own converter leaves out the tables (FT v5.3 huggingface_bert_convert.py:82), as the
backend's BERT begins with what was looked up in them. Matrices are [in, out], their shares for several GPUs
as that converter cuts them (:54-80).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from checkpoint_tensors import Array, Order, Tensors, by_columns, by_rows, ordered, write

SECTION = "bert"
# A checkpoint with a head on top has the model below this name.
PREFIX = "bert."
TABLES = {"word_embeddings": "vocab_size", "position_embeddings": "max_position_embeddings",
          "token_type_embeddings": "type_vocab_size"}  # fmt: skip
TYPES = 2  # transformers' default of type_vocab_size
# Names of a norm's factors and summands in checkpoints that came from TensorFlow.
OLDER = {"weight": "gamma", "bias": "beta"}


def converted(read: Tensors, settings: Mapping[str, Any], gpus: int) -> Iterator[tuple[str, Array]]:
    """Yield name and array of every file."""
    hidden, inner = settings["hidden_size"], settings["intermediate_size"]
    prefix = PREFIX if f"{PREFIX}embeddings.word_embeddings.weight" in read else ""

    def norm(of: str) -> Iterator[tuple[str, Array]]:
        for name, older in OLDER.items():
            source = f"{prefix}{of}LayerNorm.{name}"
            name_in_file = source if source in read else f"{prefix}{of}LayerNorm.{older}"
            yield f"model.{of}LayerNorm.{name}", read(name_in_file, hidden)

    def split(of: str, rows: int, columns: int) -> Iterator[tuple[str, Array]]:
        """Yield a layer whose outputs the GPUs share."""
        matrix = read(f"{prefix}{of}.weight", columns, rows).T
        yield from by_columns(f"model.{of}.weight", matrix, gpus)
        yield from by_columns(f"model.{of}.bias", read(f"{prefix}{of}.bias", columns), gpus)

    def joined(of: str, rows: int) -> Iterator[tuple[str, Array]]:
        """Yield a layer whose inputs the GPUs share: the sum of their outputs gets the bias once."""
        yield from by_rows(f"model.{of}.weight", read(f"{prefix}{of}.weight", hidden, rows).T, gpus)
        yield f"model.{of}.bias", read(f"{prefix}{of}.bias", hidden)

    for table, key in TABLES.items():
        name = f"embeddings.{table}.weight"
        yield f"model.{name}", read(f"{prefix}{name}", _number(settings, key), hidden)
    yield from norm("embeddings.")
    for layer in range(settings["num_hidden_layers"]):
        of = f"encoder.layer.{layer}."
        for name in ("query", "key", "value"):
            yield from split(f"{of}attention.self.{name}", hidden, hidden)
        yield from joined(f"{of}attention.output.dense", hidden)
        yield from norm(f"{of}attention.output.")
        yield from split(f"{of}intermediate.dense", hidden, inner)
        yield from joined(f"{of}output.dense", inner)
        yield from norm(f"{of}output.")


def config_of(settings: Mapping[str, Any], gpus: int, dtype: str) -> dict[str, str]:
    """Return the values of config.ini: those of FasterTransformer's converter, and the sizes of the tables.

    Whatever the form of GELU, FasterTransformer computes its tanh form, and knows it by one name.
    """
    heads = settings["num_attention_heads"]
    activation = settings.get("hidden_act") or "gelu"
    values = {
        "model_name": "bert",
        "hidden_size": settings["hidden_size"],
        "num_layer": settings["num_hidden_layers"],
        "head_num": heads,
        "size_per_head": settings["hidden_size"] // heads,
        "activation_type": "relu" if activation == "relu" else "gelu",
        "inter_size": settings["intermediate_size"],
        "layer_norm_eps": settings.get("layer_norm_eps", 1e-12),
        "weight_data_type": dtype,
        "tensor_para_size": gpus,
        **{key: _number(settings, key) for key in TABLES.values()},
    }
    return {name: str(value) for name, value in values.items()}


def main(order: Order) -> None:
    """Convert a checkpoint."""
    settings = order.settings()
    arrays = converted(Tensors(order.folder, order.files), settings, order.gpus)
    write(order, SECTION, config_of(settings, order.gpus, order.dtype), arrays)


def _number(settings: Mapping[str, Any], key: str) -> int:
    return int(settings.get(key, TYPES) if key == "type_vocab_size" else settings[key])


if __name__ == "__main__":
    main(ordered(__doc__))
