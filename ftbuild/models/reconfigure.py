"""A Hugging Face checkpoint with another config.json, for a converter that would misread its own.

Runs inside the SDK image, alone:
python3 reconfigure.py transformers_4 CHECKPOINT TARGET --config=JSON WEIGHT_FILE...

TARGET gets config.json with the content JSON, and links to the weights: WEIGHT_FILE are the names of the
checkpoint's .safetensors or .bin files, whose index is linked, too.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

INDEXES = "*.index.json"


def main(folder: Path, target: Path, config: str, files: Sequence[str]) -> None:
    """Write config.json into `target`, and links to the weights in `folder`."""
    target.mkdir(parents=True, exist_ok=True)  # smoke converts for one GPU, then for two
    (target / "config.json").write_text(json.dumps(json.loads(config), indent=2) + "\n")
    for name in [*files, *(index.name for index in folder.glob(INDEXES))]:
        (target / name).unlink(missing_ok=True)
        (target / name).symlink_to(folder / name)
    print(f"{target / 'config.json'}, and links to {len(files)} weight files")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layout", choices=("transformers_4",))
    parser.add_argument("folder", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--config", required=True)
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    main(options.folder, options.target, options.config, options.files)
