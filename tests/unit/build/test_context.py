from __future__ import annotations

import os
from pathlib import Path

from ftbuild.build import context
from ftbuild.config.schema import Config
from ftbuild.matrix import select
from ftbuild.plan import Revision
from ftbuild.planning import make_plan


def test_the_users_umask_is_not_in_the_image(config: Config, tmp_path: Path) -> None:
    (cell,) = select(config, triton=["22.12"], sms=["80"])
    plan = make_plan(config, cell, Revision("a" * 40, "2026-01-01T00:00:00+00:00"))
    before = os.umask(0o077)
    try:
        context.recipe(plan, tmp_path / "recipe")
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "recipe").rglob("*")}
    assert modes <= {0o755, 0o644}
