from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftbuild.config import loader
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError, NothingSelected
from ftbuild.matrix import (
    Cell,
    Excluded,
    as_github,
    bases_of,
    cuda_version,
    make_matrix,
    overview,
    renamed,
    select,
    select_with_excluded,
)
from ftbuild.matrix import (
    entry as entry_of,
)
from ftbuild.proven import as_json, evidence, tried, unproven

# Of 22.12 on open, in bases.yaml.
H100 = "NVIDIA H100, with server 2.51.0"


def ids(config: Config, **options: object) -> list[str]:
    return [cell.id for cell in select(config, **options)]  # type: ignore[arg-type]


def reasons(config: Config, cell_id: str, *bases: str) -> str:
    return "\n".join(next(e.reasons for e in make_matrix(config, *bases).excluded if e.cell.id == cell_id))


def test_every_pair_of_release_and_sm_is_either_a_cell_or_excluded_with_a_reason(config: Config) -> None:
    table = make_matrix(config)
    assert len(table.cells) + len(table.excluded) == len(config.matrix.releases) * len(config.matrix.sms)
    assert {c.id for c in table.cells}.isdisjoint(e.cell.id for e in table.excluded)
    assert all(entry.reasons for entry in table.excluded)


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("22.03-sm90-ngc", "CUDA 11.6 is too old for sm_90, which needs 11.8"),
        ("22.03-sm89-ngc", "does not know sm_89 (FasterTransformer v5.0 CMakeLists.txt:89)"),
        ("22.07-sm89-ngc", "CUDA 11.7 is too old for sm_89"),
        ("24.10-sm120-ngc", "CUDA 12.6 is too old for sm_120, which needs 12.8"),
    ],
)
def test_an_impossible_cell_says_why_and_where_that_stands(config: Config, cell: str, why: str) -> None:
    assert why in reasons(config, cell, "ngc")


def test_a_newer_toolkit_of_the_base_does_not_make_an_old_fastertransformer_know_the_sm(
    config: Config,
) -> None:
    why = reasons(config, "22.07-sm89")
    assert "CUDA" not in why.splitlines()[0]
    assert "does not know sm_89" in why


def test_hopper_needs_both_a_newer_toolkit_and_a_patch_of_the_old_releases(config: Config) -> None:
    assert ids(config, triton=["22.03", "22.07"], sms=["90"], bases=["open"]) == [
        "22.03-sm90",
        "22.07-sm90",
    ]
    assert "does not know" not in reasons(config, "22.07-sm90-ngc", "ngc")


def test_the_main_job_is_one_cell(config: Config) -> None:
    assert ids(config, triton=["22.12"], sms=["80"]) == ["22.12-sm80"]


def test_another_base_than_the_default_is_part_of_the_id(config: Config) -> None:
    assert ids(config, triton=["22.12"], sms=["90"], bases=["ngc"]) == ["22.12-sm90-ngc"]


def test_several_sms_go_into_one_image_in_one_order(config: Config) -> None:
    assert ids(config, triton=["22.12"], sms=["86,80"]) == ["22.12-sm80_86"]
    assert ids(config, triton=["22.12"], sms=["80", "86"]) == ["22.12-sm80", "22.12-sm86"]


def test_without_an_sm_the_default_ones_of_the_release_are_taken(config: Config) -> None:
    assert ids(config, triton=["22.03"]) == ["22.03-sm80"]


def test_globs_select_among_the_possible_cells(config: Config) -> None:
    assert ids(config, cells=["22.12-sm8?"]) == ["22.12-sm80", "22.12-sm86", "22.12-sm89"]
    assert ids(config, cells=["22.*-sm80"], triton=["22.07"]) == ["22.07-sm80"]


@pytest.mark.parametrize("sm", ["110", "8", "sm80", "", "80,"])
def test_an_unknown_sm_names_the_known_ones(config: Config, sm: str) -> None:
    with pytest.raises(ConfigError, match="60, 61, 70, 75, 80, 86, 89, 90"):
        select(config, triton=["22.12"], sms=[sm])


@pytest.mark.parametrize("sm", ["80,86", "8.6,8.0", "sm_86,sm_80", "80_86", "80, 86", "86,80,86"])
def test_an_sm_may_be_written_as_nvidia_writes_it(config: Config, sm: str) -> None:
    assert ids(config, triton=["22.12"], sms=[sm]) == ["22.12-sm80_86"]


def test_an_unknown_release_names_the_known_ones(config: Config) -> None:
    with pytest.raises(ConfigError, match=r"22\.03, 22\.07, 22\.12"):
        select(config, triton=["22.10"])


def test_an_excluded_cell_is_refused_with_reason_and_alternatives(config: Config) -> None:
    with pytest.raises(ConfigError) as refused:
        select(config, triton=["22.03"], sms=["90"], bases=["ngc"])
    assert "22.03-sm90-ngc cannot be built" in str(refused.value)
    assert "too old for sm_90" in str(refused.value)
    assert "22.03-sm60-ngc, 22.03-sm61-ngc, 22.03-sm70-ngc, 22.03-sm75-ngc" in str(refused.value)


def test_a_toolkit_that_no_longer_knows_the_sm_is_too_new(config: Config) -> None:
    table = make_matrix(config, "open-cuda13")
    excluded = {e.cell.id: "".join(e.reasons) for e in table.excluded}
    assert "CUDA 13.0 is too new for sm_70, which needs one before 13.0" in excluded["24.10-sm70"]
    assert [c.sms[0] for c in table.cells] == [75, 80, 86, 89, 90, 100, 103, 120]


def test_a_release_that_the_base_lacks_is_refused_with_the_bases_that_have_it(config: Config) -> None:
    with pytest.raises(ConfigError) as refused:
        select(config, triton=["24.10"], sms=["120"], bases=["ngc"])
    assert "base ngc carries no image for 24.10" in str(refused.value)
    assert "bases for 24.10: open-cuda13" in str(refused.value)


def test_what_no_gpu_has_run_says_so(config: Config) -> None:
    known = {
        tuple(cell.sms): tried(config, cell)
        for cell in select(config, triton=["22.12"], sms=["80", "90", "80,90"], bases=["open"])
    }
    assert known == {
        (80,): "built, never run",
        (90,): f"sm_90: {H100}",
        (80, 90): f"sm_80: built, never run; sm_90: {H100}",
    }
    (newer,) = select(config, triton=["24.10"], sms=["120"], bases=["open-cuda13"])
    assert tried(config, newer) == "built, never run"


def test_the_matrix_says_what_is_known_of_each_image(config: Config) -> None:
    cells = select(config, triton=["22.12"], sms=["75", "80", "80,90"], bases=["open"])
    assert [list(evidence(config, cell).values()) for cell in cells] == [
        ["never built"],
        ["built, never run"],
        ["built, never run", H100],
    ]


def test_a_default_sm_that_cannot_be_built_is_a_mistake_in_the_matrix(config_folder: Path) -> None:
    file = config_folder / "matrix.yaml"
    text = file.read_text().replace("default_sms: [80]", "default_sms: [80, 89]", 1)
    file.write_text(text)
    line = text[: text.index("default_sms")].count("\n") + 1
    with pytest.raises(ConfigError, match=rf"22\.03-sm89 cannot be built(.|\n)*matrix\.yaml:{line}"):
        select(loader.load(config_folder))


def test_a_glob_that_hits_only_excluded_cells_says_why(config: Config) -> None:
    with pytest.raises(ConfigError, match="too old for sm_90"):
        select(config, cells=["22.03-sm90-ngc"])


def test_a_misspelt_cell_names_the_valid_ones(config: Config) -> None:
    with pytest.raises(ConfigError, match=r"no cell is called '22\.12-80'.*\n.*22\.12-sm80"):
        select(config, cells=["22.12-80"])


def test_options_that_contradict_each_other_select_nothing(config: Config) -> None:
    with pytest.raises(NothingSelected):
        select(config, cells=["22.12-*"], triton=["22.03"])


def test_an_unknown_base_names_the_known_ones(config: Config) -> None:
    with pytest.raises(ConfigError, match="ngc, open"):
        make_matrix(config, "ubuntu")


def test_github_output_is_a_matrix_on_one_line_and_a_count(config: Config) -> None:
    lines = as_github(select(config, triton=["22.12"])).splitlines()
    assert [line.partition("=")[0] for line in lines] == ["matrix", "count"]
    included = json.loads(lines[0].partition("=")[2])["include"]
    assert {"id": "22.12-sm80", "triton": "22.12", "sms": "80", "base": "open"} in included
    assert lines[1] == f"count={len(included)}"


def test_json_holds_cells_and_reasons(config: Config) -> None:
    data = json.loads(as_json(config, make_matrix(config)))
    ran = {"90": H100}
    cell = {"id": "22.12-sm90", "triton": "22.12", "sms": [90], "base": "open", "evidence": ran}
    cell["support_end"] = "2028-06-30"
    assert cell in data["cells"]
    assert next(e for e in data["excluded"] if e["id"] == "22.03-sm89")["reasons"]


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.sampled_from([60, 61, 70, 75, 80, 86, 89, 90]), min_size=1, max_size=8))
def test_the_id_depends_on_the_set_of_sms_only(config: Config, sms: list[int]) -> None:
    (cell,) = select(config, triton=["22.12"], sms=[",".join(map(str, sms))])
    assert cell.id == "22.12-sm" + "_".join(map(str, sorted(set(sms))))


@pytest.mark.parametrize("sms", ["80,89", "89,80", "80,86,89"])
def test_every_sm_of_an_image_must_be_possible(config: Config, sms: str) -> None:
    with pytest.raises(ConfigError, match=r"too old for sm_89, which needs"):
        select(config, triton=["22.07"], sms=[sms], bases=["ngc"])


def test_a_cell_that_is_named_twice_is_one(config: Config) -> None:
    assert ids(config, triton=["22.12", "22.12"], sms=["80", "80", "8.0"]) == ["22.12-sm80"]
    assert ids(config, cells=["22.12-sm80", "22.12-*0"]) == [
        "22.12-sm80",
        "22.12-sm60",
        "22.12-sm70",
        "22.12-sm90",
    ]


def test_globs_and_sms_narrow_each_other(config: Config) -> None:
    assert ids(config, cells=["22.12-*"], sms=["80"]) == ["22.12-sm80"]
    with pytest.raises(NothingSelected):
        select(config, cells=["22.12-sm80"], sms=["86"])


def with_open_base_of(config: Config, *releases: str) -> Config:
    """The configuration with another list of releases that base open carries."""
    changed = config.bases.bases["open"].model_copy(update={"releases": releases})
    bases = {**config.bases.bases, "open": changed}
    return replace(config, bases=config.bases.model_copy(update={"bases": bases}))


def test_a_release_that_a_base_does_not_carry_is_excluded_and_not_selected_by_default(config: Config) -> None:
    without = with_open_base_of(config, "22.07", "22.12")
    why = "base open carries no image for 22.03 (Debian bookworm with its CUDA 11.8 toolkit"
    assert why in reasons(without, "22.03-sm80", "open")
    assert "carries no image" not in reasons(config, "22.03-sm89", "open")
    assert {cell[:5] for cell in ids(without, bases=["open"])} == {"22.07", "22.12"}
    assert {cell[:5] for cell in ids(config, bases=["open"])} == {"22.03", "22.07", "22.12"}
    with pytest.raises(ConfigError, match=r"carries no image for 22\.03"):
        select(without, triton=["22.03"], sms=["80"], bases=["open"])


def test_several_bases_have_the_cells_of_each_and_a_release_only_where_it_is_carried(config: Config) -> None:
    bases = ["ngc", "open-cuda13", "open-trixie"]
    every = ["22.03-sm80-ngc", "22.07-sm80-ngc", "22.12-sm80-ngc", "24.10-sm80", "26.06-sm80"]
    assert ids(config, bases=bases, sms=["80"]) == every
    assert listed(config, bases=bases, sms=["80"]) == (every, [])
    assert ids(config, bases=bases, cells=["*-sm80*"]) == every
    assert ids(config, bases=bases, triton=["26.06", "22.12"], sms=["80"]) == [every[2], every[4]]
    assert ids(config, bases=["open", "ngc", "open"], triton=["22.12"], sms=["80"]) == [
        "22.12-sm80",
        "22.12-sm80-ngc",
    ]


def test_a_cell_that_one_of_several_bases_excludes_is_refused_with_the_cells_of_that_base(
    config: Config,
) -> None:
    with pytest.raises(ConfigError) as refused:
        select(config, triton=["22.03"], sms=["90"], bases=["open", "ngc"])
    assert "22.03-sm90-ngc cannot be built" in str(refused.value)
    assert "cells of 22.03 on base ngc: 22.03-sm60-ngc, 22.03-sm61-ngc" in str(refused.value)
    assert "22.03-sm60," not in str(refused.value)
    table = select_with_excluded(config, triton=["22.03"], sms=["90"], bases=["open", "ngc"])
    assert [cell.id for cell in table.cells] == ["22.03-sm90"]
    assert [each.cell.id for each in table.excluded] == ["22.03-sm90-ngc"]


def test_a_release_that_none_of_several_bases_carries_is_refused(config: Config) -> None:
    with pytest.raises(ConfigError, match=r"base open carries no image for 26\.06"):
        select(config, triton=["26.06"], sms=["90"], bases=["open", "open-cuda13"])
    with pytest.raises(ConfigError, match=r"'ubuntu' is not described"):
        select(config, bases=["open", "ubuntu"])


def test_the_toolkit_of_the_base_decides_which_sms_can_be_compiled(config: Config) -> None:
    (ngc,) = select(config, triton=["22.03"], sms=["80"], bases=["ngc"])
    (own,) = select(config, triton=["22.03"], sms=["80"])
    assert (cuda_version(config, ngc), cuda_version(config, own)) == ("11.6", "11.8")


def test_a_cell_is_written_as_its_id(config: Config) -> None:
    (cell,) = select(config, triton=["22.12"], sms=["80,86"], bases=["ngc"])
    assert str(cell) == cell.id == "22.12-sm80_86-ngc"


def listed(config: Config, **options: object) -> tuple[list[str], list[str]]:
    table = select_with_excluded(config, **options)  # type: ignore[arg-type]
    return [cell.id for cell in table.cells], [entry.cell.id for entry in table.excluded]


def test_the_whole_matrix_lists_what_cannot_be_built_with_the_rest(config: Config) -> None:
    cells, excluded = listed(config)
    table = make_matrix(config)
    assert cells == [cell.id for cell in table.cells]
    assert excluded == [entry.cell.id for entry in table.excluded]
    assert listed(config, bases=["ngc"]) != (cells, excluded)


def test_options_narrow_the_list_and_what_is_excluded_from_it(config: Config) -> None:
    assert listed(config, triton=["22.03"], sms=["80", "89"]) == (["22.03-sm80"], ["22.03-sm89"])
    assert listed(config, cells=["22.07-sm8?"]) == (["22.07-sm80", "22.07-sm86"], ["22.07-sm89"])
    assert listed(config, triton=["22.12"], sms=["80,90", "80,90"], bases=["ngc"]) == (
        ["22.12-sm80_90-ngc"],
        [],
    )
    table = select_with_excluded(config, triton=["22.03"], sms=["80", "90"], bases=["ngc"])
    assert "too old for sm_90" in "".join(table.excluded[0].reasons)


def test_a_list_without_a_possible_cell_selects_nothing(config: Config) -> None:
    for options in ({"cells": ["22.13-*"]}, {"triton": ["22.03"], "sms": ["89"]}):
        with pytest.raises(NothingSelected, match="no cell is selected"):
            listed(config, **options)
    with pytest.raises(ConfigError, match="ngc, open"):
        listed(config, bases=["ubuntu"])
    with pytest.raises(ConfigError, match="is not in the matrix"):
        listed(config, sms=["110"])


@pytest.mark.parametrize("bases", [(), ("open",), ("open", "open-cuda13", "open-trixie"), "all"], ids=str)
def test_every_id_that_the_matrix_prints_selects_its_cell(config: Config, bases: Any) -> None:
    table = make_matrix(config, *(tuple(config.bases.bases) if bases == "all" else bases))
    for cell in table.cells:
        assert select(config, cells=[cell.id]) == (cell,)
        assert select_with_excluded(config, cells=[cell.id]).cells == (cell,)
    for entry in table.excluded:
        with pytest.raises(ConfigError, match="cannot be built"):
            select(config, cells=[entry.cell.id])


@pytest.mark.parametrize("base", ["ngc", "open"])
def test_the_id_of_an_image_with_several_sms_selects_it(config: Config, base: str) -> None:
    for sms in ("80,86", "70,80,90"):
        (cell,) = select(config, triton=["22.12"], sms=[sms], bases=[base])
        assert select(config, cells=[cell.id]) == (cell,)
        assert select_with_excluded(config, cells=[cell.id]).cells == (cell,)


def test_a_glob_means_the_default_base_where_it_fits_and_else_any(config: Config) -> None:
    assert {cell.base for cell in select(config, cells=["22.12-*"])} == {"open"}
    assert ids(config, cells=["22.12-sm8?-ngc"]) == ["22.12-sm80-ngc", "22.12-sm86-ngc", "22.12-sm89-ngc"]


def test_a_base_that_is_named_is_the_only_one(config: Config) -> None:
    for call in (select, select_with_excluded):
        for name in ("22.12-sm80-open", "22.12-sm80_86-open", "22.12-sm80-open-cuda13"):
            with pytest.raises((ConfigError, NothingSelected)):
                call(config, cells=[name], bases=["ngc"])
    with pytest.raises(ConfigError, match="sm_35 is not in the matrix"):
        select(config, cells=["22.12-sm35_80"])


def test_without_a_base_each_release_stands_on_its_own(config: Config) -> None:
    on = {cell.triton: cell.base for cell in select(config)}
    assert on == {name: release.base for name, release in config.matrix.releases.items()}
    assert on == {
        "22.03": "open",
        "22.07": "open",
        "22.12": "open",
        "24.10": "open-cuda13",
        "26.06": "open-trixie",
    }


def test_the_base_of_a_release_was_built_and_has_run_and_needs_no_registry(config: Config) -> None:
    for name, release in config.matrix.releases.items():
        base = config.bases.bases[release.base]
        assert base.built[name]
        assert base.tried[name]
        assert base.local


def test_the_main_job_was_built_here(config: Config) -> None:
    (cell,) = select(config, triton=["22.12"], sms=["80"])
    assert list(evidence(config, cell).values()) == ["built, never run"]


def test_the_overview_has_every_base_and_hides_nothing(config: Config) -> None:
    table = overview(config)
    pairs = {(cell.triton, cell.base) for cell in (*table.cells, *(each.cell for each in table.excluded))}
    carried = {(name, base) for base, about in config.bases.bases.items() for name in about.releases}
    assert pairs == carried
    assert len(table.cells) + len(table.excluded) == len(carried) * len(config.matrix.sms)


@pytest.mark.parametrize(
    "options",
    [
        {"triton": ["22.12"]},
        {"bases": ["open"]},
        {"triton": ["22.12", "24.10"], "sms": ["80"]},
        {"sms": ["80", "90"]},
        {"cells": ["*-sm8?"]},
    ],
    ids=str,
)
def test_what_an_option_leaves_of_the_overview_is_as_it_was(config: Config, options: Any) -> None:
    table = overview(config, **options)
    whole = overview(config)
    assert 0 < len(table.cells) < len(whole.cells)
    assert set(table.cells) <= set(whole.cells)
    reasons_of = {entry.cell: entry.reasons for entry in whole.excluded}
    fitting = [
        cell
        for cell in whole.cells
        if cell.triton in options.get("triton", [cell.triton])
        and cell.base in options.get("bases", [cell.base])
        and str(cell.sms[0]) in options.get("sms", [str(cell.sms[0])])
        and ("cells" not in options or 80 <= cell.sms[0] <= 89)
    ]
    if "cells" not in options:
        assert list(table.cells) == fitting
    for entry in table.excluded:
        assert reasons_of.get(entry.cell, entry.reasons) == entry.reasons


def test_the_overview_of_what_cannot_be_built_is_no_mistake(config: Config) -> None:
    table = overview(config, triton=["26.06"], bases=["open"])
    assert not table.cells
    assert len(table.excluded) == len(config.matrix.sms)
    with pytest.raises(NothingSelected):
        overview(config, cells=["22.13-*"])


def test_an_id_with_the_base_of_its_release_is_understood_and_told_of(config: Config) -> None:
    for full, short in (("22.12-sm80-open", "22.12-sm80"), ("26.06-sm90-open-trixie", "26.06-sm90")):
        cells = select(config, cells=[full])
        assert [cell.id for cell in cells] == [short]
        (note,) = renamed(cells, [full])
        assert note.startswith(f"{full} is called {short}: ")
    (several,) = select(config, cells=["22.12-sm80_86-open"])
    assert several.id == "22.12-sm80_86"
    assert not renamed(
        select(config, cells=["22.12-sm80", "22.12-sm80-ngc"]), ["22.12-sm80", "22.12-sm80-ngc"]
    )
    assert {cell.base for cell in select(config, cells=["*-sm90-open"])} == {"open"}


def test_a_base_on_which_nothing_was_built_is_warned_of_once_for_each_release(config: Config) -> None:
    assert not unproven(config, select(config))
    (warning,) = unproven(config, select(config, triton=["22.12"], bases=["ngc"]))
    assert "nvcr.io/nvidia/tritonserver:22.12-py3" in warning
    assert "22.12 stands on open" in warning
    assert len(unproven(config, select(config, bases=["ngc", "open-trixie-arm64"]))) == 4


@pytest.mark.parametrize(
    ("base", "why"), [("ubuntu", "is not described in bases.yaml"), ("open-cuda13", "carries no image for")]
)
def test_a_release_stands_on_a_base_that_there_is_and_that_carries_it(
    config_folder: Path, base: str, why: str
) -> None:
    file = config_folder / "matrix.yaml"
    text = file.read_text().replace("    base: open\n", f"    base: {base}\n", 1)
    file.write_text(text)
    line = text[: text.index("    base:")].count("\n") + 1
    with pytest.raises(ConfigError, match=rf"matrix\.yaml:{line}: .*{why}"):
        loader.load(config_folder)


def test_options_beside_an_id_narrow_the_cells_of_other_bases_too(config: Config) -> None:
    assert listed(config, cells=["22.12-sm80-ngc"], triton=["22.12"]) == (["22.12-sm80-ngc"], [])
    assert listed(config, cells=["*-sm8?-ngc"], triton=["22.12"], sms=["80", "89"]) == (
        ["22.12-sm80-ngc", "22.12-sm89-ngc"],
        [],
    )
    for options in ({"triton": ["22.07"]}, {"sms": ["90"]}, {"triton": ["22.07"], "sms": ["90"]}):
        with pytest.raises(NothingSelected):
            listed(config, cells=["22.12-sm80-ngc"], **options)


@pytest.mark.parametrize("options", [{"triton": ["22.03"], "sms": ["89"]}, {"cells": ["22.03-sm89"]}])
def test_what_somebody_asks_for_is_no_mistake_in_the_matrix(config: Config, options: Any) -> None:
    with pytest.raises(ConfigError, match=r"22\.03-sm89 cannot be built") as refused:
        select(config, **options)
    assert refused.value.where is None


def test_every_reason_of_a_refusal_has_a_line(config: Config) -> None:
    excluded = max(make_matrix(config, "ngc").excluded, key=lambda each: len(each.reasons))
    assert len(excluded.reasons) > 1
    with pytest.raises(ConfigError) as refused:
        select(config, cells=[excluded.cell.id])
    assert refused.value.what.splitlines() == [
        f"{excluded.cell.id} cannot be built:",
        *(f"  - {reason}" for reason in excluded.reasons),
    ]


def test_a_cell_is_found_again_by_what_a_record_says_of_it(config: Config) -> None:
    for cell in (*make_matrix(config).cells, *select(config, triton=["22.12"], sms=["80,86"], bases=["ngc"])):
        assert entry_of(config, cell.triton, cell.sms, cell.base) == cell
    for excluded in make_matrix(config).excluded:
        cell = excluded.cell
        assert entry_of(config, cell.triton, cell.sms, cell.base) == excluded
    with pytest.raises(ConfigError, match=r"'22\.13' is not in the matrix"):
        entry_of(config, "22.13", [80], "open")


def test_the_longest_id_is_the_one_of_which_every_tag_still_is_one(config: Config) -> None:
    def on(base: str) -> Cell | Excluded:
        bases = {**config.bases.bases, base: config.bases.bases["open"]}
        changed = replace(config, bases=config.bases.model_copy(update={"bases": bases}))
        return entry_of(changed, "22.12", [80], base)

    base = "b" * (128 - len("22.12-sm80--0123456789ab-sdk"))
    longest = on(base)
    assert isinstance(longest, Cell)
    assert len(f"{longest.id}-0123456789ab-sdk") == 128
    refused = on(f"{base}b")
    assert isinstance(refused, Excluded)
    assert refused.reasons == ("its id is longer than 111 characters, and a tag has 128 at most",)


def test_a_bundle_is_for_the_bases_that_are_named_or_that_carry_the_releases(config: Config) -> None:
    assert bases_of(config, ["22.12"], "none") == bases_of(config, [], "none") == []
    assert bases_of(config, ["26.06"], "open") == ["open"]
    assert bases_of(config, ["24.10"], None) == ["open-cuda13"]
    assert bases_of(config, [], None) == list(config.bases.bases)
    with pytest.raises(ConfigError, match="'ubuntu' is not described"):
        bases_of(config, [], "ubuntu")


def test_a_glob_over_another_base_selects_what_can_be_built_and_lists_the_rest(config: Config) -> None:
    table = make_matrix(config, "ngc")
    possible = [cell.id for cell in table.cells if cell.triton == "22.03"]
    impossible = [each.cell.id for each in table.excluded if each.cell.triton == "22.03"]
    assert possible
    assert impossible
    assert ids(config, cells=["22.03-sm*-ngc"]) == possible
    assert listed(config, cells=["22.03-sm*-ngc"]) == (possible, impossible)
