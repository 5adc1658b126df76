"""The names of the tensors that transformers saves, for each family.

    PYTHON -m tests.unit.models.recorded_names FILE.json

PYTHON has torch and transformers. Tests take them from there (test_tensor_names.py): they need neither.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testing.key_effects import FAMILIES

# kind -> changes of a configuration that change which tensors there are
MORE: Mapping[str, tuple[str, dict[str, Any]]] = {
    "opt-350m": ("opt", {"word_embed_proj_dim": 32, "do_layer_norm_before": False}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "t5-fewer decoders": ("t5", {"num_decoder_layers": 1}),
}
# What is saved from a model without its head, whose names have no prefix.
BASES = {"gpt": "GPT2Model", "opt": "OPTModel", "bloom": "BloomModel"}


def kinds() -> Iterator[tuple[str, str, str, str, dict[str, Any]]]:
    """Yield name, model_type, class of the model, class of its configuration, and the configuration."""
    for name, made in FAMILIES.items():
        yield (name, *made)
    for name, (of, changed) in MORE.items():
        model_type, model, config, settings = FAMILIES[of]
        yield name, model_type, model, config, {**settings, **changed}
    for of, model in BASES.items():
        model_type, _, config, settings = FAMILIES[of]
        yield f"{of}-base", model_type, model, config, settings


def saved(
    model_class: str, config_class: str, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return config.json of a model, and the names in its safetensors."""
    import transformers

    config = getattr(transformers, config_class)(**settings)
    with tempfile.TemporaryDirectory() as folder:
        getattr(transformers, model_class)(config).save_pretrained(folder)
        content = (Path(folder) / "model.safetensors").read_bytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return dict(settings), sorted(header.keys() - {"__metadata__"})


def main(file: Path) -> None:
    """Write the names that the installed transformers saves."""
    lines = []
    for name, model_type, model, config, settings in kinds():
        written, names = saved(model, config, settings)
        lines.append(
            f" {json.dumps(name)}: {json.dumps([{'model_type': model_type, **written}, ' '.join(names)])}"
        )
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
