"""What cells leave out: how it is typed, how ids and labels say it, and what it decides."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftbuild import cmake, features, matrix, proven
from ftbuild.cli import explain
from ftbuild.cli.selection import Selection, plans
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from ftbuild.features import FEATURES, HEAD_SIZES, NOTHING, LeftOut
from ftbuild.input_key import cell_key, input_key
from ftbuild.plan import PRODUCTS, Plan
from ftbuild.plan_file import read, write

SOME = LeftOut(("beams", "int8"), (64, 128))
LEAN = st.builds(
    lambda names, sizes: features.parse(sorted(names), map(str, sizes)),
    st.sets(st.sampled_from(sorted(FEATURES))),
    st.sets(st.sampled_from(HEAD_SIZES)),
)


def planned(
    config: Config,
    triton: str = "22.12",
    *,
    sm: str = "80",
    without: Sequence[str] = (),
    head_sizes: Sequence[str] = (),
) -> Plan:
    (plan,) = plans(config, Selection(config.folder, [triton], [sm], without=without, head_sizes=head_sizes))
    return plan


@given(LEAN)
def test_ids_options_and_labels_say_what_is_left_out(left_out: LeftOut) -> None:
    for name in ("22.12-sm80", "22.12-sm80_86-open", "26.06-sm90-open-trixie-arm64"):
        assert features.split_id(name + left_out.suffix) == (name, left_out)
    words = dict(zip(left_out.words()[::2], left_out.words()[1::2], strict=True))
    assert (
        features.parse(*([words[each]] if each in words else [] for each in ("--without", "--head-sizes")))
        == left_out
    )
    labels = left_out.labels("io.ftbuild")
    assert features.of_labels(labels, "io.ftbuild") == left_out
    assert bool(labels) == bool(left_out) == bool(left_out.record()) == bool(left_out.refused())


def test_order_and_repetition_do_not_matter() -> None:
    assert features.parse(["int8", "beams,int8"], ["128", "64,128"]) == SOME
    assert features.split_id("22.12-sm80-without-int8_beams-heads-128_64") == ("22.12-sm80", SOME)


def test_all_sizes_of_heads_leave_nothing_out() -> None:
    assert features.parse([], [",".join(map(str, HEAD_SIZES))]) == NOTHING


@pytest.mark.parametrize("name", ["", "beam", "Beams", "heads", "beams;int8", "beams,,int8"])
def test_a_feature_that_there_is_not_names_those_that_there_are(name: str) -> None:
    with pytest.raises(ConfigError, match="no such feature") as refused:
        features.parse([name], [])
    assert "beams, experts, int8" in (refused.value.hint or "")


@pytest.mark.parametrize("size", ["", "0", "72", "64.0", "-64", "٦٤", "64,", "99999999"])
def test_a_size_of_heads_without_kernels_names_those_with(size: str) -> None:
    with pytest.raises(ConfigError, match="has no kernels") as refused:
        features.parse([], [size])
    assert "32, 48, 64" in (refused.value.hint or "")


def test_labels_of_a_later_ftbuild_are_taken_as_they_are() -> None:
    labels = {"io.ftbuild.without": "beams,streams", "io.ftbuild.head-sizes": "64,x"}
    assert features.of_labels(labels, "io.ftbuild") == LeftOut(("beams", "streams"), (64,))


@pytest.mark.parametrize(
    ("options", "cell"),
    [
        ({"without": ["int8", "beams"]}, "22.12-sm80-without-beams_int8"),
        ({"head_sizes": ["128,64"]}, "22.12-sm80-heads-64_128"),
        ({"without": ["experts"], "head_sizes": ["64"]}, "22.12-sm80-without-experts-heads-64"),
    ],
)
def test_the_id_selects_the_same_cell_as_the_options(
    config: Config, options: dict[str, list[str]], cell: str
) -> None:
    by_options = planned(config, without=options.get("without", ()), head_sizes=options.get("head_sizes", ()))
    assert by_options.cell.id == cell
    (by_id,) = plans(config, Selection(config.folder, cell=[cell]))
    assert by_id == by_options
    (full,) = matrix.select(config, cells=[by_options.cell.full_id])
    assert full == by_options.cell
    assert matrix.entry(config, "22.12", [80], full.base, full.left_out) == full


def test_a_glob_selects_lean_cells_by_the_part_before(config: Config) -> None:
    found = [cell.id for cell in matrix.select(config, cells=["22.12-sm8*-without-int8"])]
    assert found == ["22.12-sm80-without-int8", "22.12-sm86-without-int8", "22.12-sm89-without-int8"]


def test_the_matrix_lists_a_lean_cell_by_its_id(config: Config) -> None:
    for name in ("22.12-sm80-without-int8", "22.12-sm80-ngc-without-int8-heads-64", "22.12-sm80_86-heads-64"):
        for listing in (matrix.select_with_excluded, matrix.overview):
            assert [cell.id for cell in listing(config, cells=[name]).cells] == [name]


def test_an_id_and_options_that_differ_are_refused(config: Config) -> None:
    with pytest.raises(ConfigError, match="so do the options: --without beams"):
        plans(config, Selection(config.folder, cell=["22.12-sm80-without-int8"], without=["beams"]))


def test_what_a_release_cannot_leave_out_is_refused_by_name(config: Config) -> None:
    for words, feature in ((["int8"], "int8"), (["experts"], "experts")):
        with pytest.raises(ConfigError, match=f"no patch leaves {feature} out of its FasterTransformer"):
            planned(config, triton="22.03", without=words)
    assert planned(config, triton="22.03", without=["beams"])
    table = matrix.overview(config, triton=["22.03"], left_out=LeftOut(("int8",)))
    assert not table.cells
    assert all("no patch leaves int8 out" in "\n".join(entry.reasons) for entry in table.excluded)


def test_an_id_that_no_tag_can_hold_is_refused(config: Config) -> None:
    cell = "26.06-sm75_80_86_89_90_100_103_120-open-trixie-arm64-without-beams_experts_int8"
    assert plans(config, Selection(config.folder, cell=[cell]))
    with pytest.raises(ConfigError, match="a tag has 128 at most"):
        plans(config, Selection(config.folder, cell=[f"{cell}-heads-{'_'.join(map(str, HEAD_SIZES[:-1]))}"]))


@pytest.mark.parametrize("triton", ["22.07", "22.12", "24.10", "26.06"])
def test_each_thing_left_out_gives_another_key_and_tag_on_the_same_base(config: Config, triton: str) -> None:
    whole = planned(config, triton=triton)
    lean = [planned(config, triton=triton, without=[name]) for name in FEATURES]
    lean += [planned(config, triton=triton, head_sizes=[sizes]) for sizes in ("64", "64,128")]
    made = [whole, *lean]
    assert len({plan.key for plan in made}) == len({plan.tag("sdk") for plan in made}) == len(made)
    assert all(plan.base == whole.base for plan in made)
    for plan in made:
        for product in PRODUCTS:
            assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", plan.tag(product).rpartition(":")[2])


def test_a_cell_that_leaves_nothing_out_has_the_key_that_it_always_had(config: Config) -> None:
    """Nothing of what lean cells brought is in it: no field, patch, option or label."""
    plan = planned(config)
    assert set(cell_key(plan.cell)) == {"triton", "sms", "base", "is_default_base"}
    assert not [name for name in plan.patch_names() if "left-out" in name]
    assert not [
        option
        for tree in plan.trees
        for option in tree.options
        if option.name in ("FT_WITHOUT", "FT_HEAD_SIZES")
    ]
    assert not [label for label in plan.labels("runtime") if label.endswith((".without", ".head-sizes"))]
    assert not {"without", "head_sizes"} & set(plan.as_dict())


def test_every_patch_that_leaves_something_out_is_for_lean_cells_alone(config: Config) -> None:
    leaving = {
        f"{component}/{name}"
        for component, ranges in config.patches.ranges.items()
        for name, taken in ranges.items()
        if taken.leaves_out
    }
    for triton in config.matrix.releases:
        assert not leaving & set(planned(config, triton=triton, sm="80").patch_names())
        assert leaving & set(planned(config, triton=triton, sm="80", without=["beams"]).patch_names())


def test_both_trees_and_the_labels_get_what_is_left_out(config: Config, tmp_path: Path) -> None:
    plan = planned(config, without=["beams,int8"], head_sizes=["64,128"])
    for tree in plan.trees:
        assert {"FT_WITHOUT": "beams;int8", "FT_HEAD_SIZES": "64;128"}.items() <= {
            option.name: option.value for option in tree.options
        }.items()
    assert plan.labels("sdk")["io.ftbuild.without"] == "beams,int8"
    assert plan.labels("sdk")["io.ftbuild.head-sizes"] == "64,128"
    assert "; without beams and int8; for heads of 64 and 128" in plan.about()
    assert {"without": ["beams", "int8"], "head_sizes": [64, 128]}.items() <= plan.as_dict().items()
    assert plan.labels("runtime")["io.ftbuild.tried"] == proven.NEVER
    write(plan, tmp_path / "plan.json")
    assert read(tmp_path / "plan.json") == plan
    assert input_key(replace(plan, cell=replace(plan.cell, left_out=NOTHING))) != plan.key


def test_what_is_left_out_is_told_before_the_build(config: Config) -> None:
    plan = planned(config, without=["beams,int8"], head_sizes=["64,128"])
    for told in (explain.cell(config, plan), explain.plan(plan)):
        assert "beam_width above 1" in told
        assert "int8_mode 1 or 2" in told
        assert "another size than 64 or 128" in told


def test_programs_learn_what_a_cell_leaves_out(config: Config) -> None:
    plan = planned(config, without=["beams"])
    (record,) = json.loads(matrix.as_github([plan.cell]).splitlines()[0].removeprefix("matrix="))["include"]
    assert record["without"] == ["beams"]
    table = matrix.overview(config, triton=["22.12"], sms=["80"], bases=["open"], left_out=SOME)
    (cell,) = json.loads(proven.as_json(config, table))["cells"]
    assert cell["id"].endswith("-without-beams_int8-heads-64_128")
    assert cell["evidence"] == {"80": proven.NEVER_BUILT}


def test_the_sources_are_told_in_the_form_of_a_list(config: Config) -> None:
    toolchain = cmake.Toolchain("gcc", "g++", "11.8")
    tree, _ = cmake.trees(planned(config).cell.sms, "5.3", "1.4", toolchain, SOME)
    assert 'set(FT_WITHOUT "beams;int8" CACHE' in tree.initial_cache()
