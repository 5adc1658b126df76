"""Fetch the sources of 22.12, or its FasterTransformer while this sleeps: fetch.py CONFIG CACHE [sleep]."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from ftbuild.config import loader
from ftbuild.sources import planned, taking
from ftbuild.sources.fetch import fetch_release

if __name__ == "__main__":
    folder, cache, *how = sys.argv[1:]
    config = loader.load(Path(folder))
    if how:
        with taking.obtaining([planned.source(config, "22.12", "ft")], [], Path(cache), print):
            time.sleep(600)
    else:
        fetch_release(config, "22.12", Path(cache))
