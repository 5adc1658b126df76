"""The selection of tests/gpu: every image of the real sources that is built here, not only default cells."""

from __future__ import annotations

import pytest

from ftbuild.cli.selection import Selection, plans
from ftbuild.config.schema import Config
from ftbuild.plan import Plan
from testing import built_images

CELLS = {
    "22.03-sm80": Selection(triton=["22.03"], sm=["80"]),
    "22.03-sm90": Selection(triton=["22.03"], sm=["90"], base=["open"]),
    "22.07-sm90": Selection(triton=["22.07"], sm=["90"], base=["open"]),
    "22.12-sm80_90-ngc": Selection(triton=["22.12"], sm=["80,90"], base=["ngc"]),
}


def planned(config: Config, cell: str) -> Plan:
    (plan,) = plans(config, CELLS[cell])
    return plan


@pytest.mark.parametrize("cell", CELLS)
def test_every_image_is_selected_by_its_labels_and_by_the_options_of_its_cell(
    config: Config, cell: str
) -> None:
    plan = planned(config, cell)
    labels = [plan.labels("runtime"), plan.labels("runtime")]
    assert [found.key for found in built_images.plans(config, labels)] == [plan.key]
    words = built_images.options(plan)
    options = dict(zip(words[::2], words[1::2], strict=True))
    selection = Selection(triton=[options["--triton"]], sm=[options["--sm"]], base=[options["--base"]])
    assert [found.key for found in plans(config, selection)] == [plan.key]


def test_images_that_this_checkout_would_not_build_are_left_out(config: Config) -> None:
    labels = planned(config, "22.03-sm80").labels("runtime")
    others = [
        {},
        {**labels, "io.ftbuild.key": "0" * 12},
        {**labels, "io.ftbuild.triton": "21.12"},
        {**labels, "io.ftbuild.sm": "90"},
        {**labels, "io.ftbuild.base": "gone"},
    ]
    assert built_images.plans(config, others) == []


def test_the_plans_are_in_the_order_of_their_cells(config: Config) -> None:
    labels = [planned(config, cell).labels("runtime") for cell in reversed(CELLS)]
    assert [plan.cell.id for plan in built_images.plans(config, labels)] == list(CELLS)
