"""The condition on a base for publishing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ftbuild.config.schema import Config
from ftbuild.errors import PublishError
from ftbuild.matrix import select
from ftbuild.plan import Plan, Revision
from ftbuild.planning import make_plan
from ftbuild.publishing import pinned


def plan_of(config: Config, base: str) -> Plan:
    (cell,) = select(config, triton=["22.12"], sms=["80"], bases=[base])
    return make_plan(config, cell, Revision("a" * 40, "2026-01-01T00:00:00+00:00"))


def test_nothing_is_published_from_a_base_that_no_lock_fixes(config: Config) -> None:
    unlocked = replace(config, lock=config.lock.model_copy(update={"bases": {}}))
    with pytest.raises(PublishError, match="no digest of its base ngc") as refused:
        pinned.require(plan_of(unlocked, "ngc"))
    assert refused.value.exit_code == 10
    assert "invoke lock" in str(refused.value)


def test_a_digest_or_locked_packages_are_enough(config: Config) -> None:
    digests = {"ngc": {"22.12": f"sha256:{'5' * 64}"}}
    pinned.require(plan_of(replace(config, lock=config.lock.model_copy(update={"bases": digests})), "ngc"))
    pinned.require(plan_of(config, "open"))
