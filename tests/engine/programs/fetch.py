"""Fetch the sources of release 22.12: fetch.py CONFIG CACHE."""

from __future__ import annotations

import sys
from pathlib import Path

from ftbuild.config import loader
from ftbuild.sources.fetch import fetch_release

if __name__ == "__main__":
    config, cache = sys.argv[1:]
    fetch_release(loader.load(Path(config)), "22.12", Path(cache))
