"""NVIDIA's later images as data: which of them our libraries fit, and what the documentation says of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ftbuild import matrix
from ftbuild.config import loader
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from testing import ROOT
from tests.unit.config.test_config import spoil
from tests.unit.docs import later_images


def test_an_image_fits_if_it_has_the_cuda_of_our_libraries(config: Config) -> None:
    found = {image.triton: image for image in later_images.images(config)}
    assert next(name for name, image in found.items() if image.fits) == "25.08"
    assert not found["25.07"].fits
    described = config.bases.not_built
    assert described
    older = described.model_copy(update={"libraries": "open"})  # CUDA 11.8
    changed = replace(config, bases=config.bases.model_copy(update={"not_built": older}))
    assert not any(image.fits for image in later_images.images(changed))


def test_an_image_has_the_critical_holes_of_its_server(config: Config) -> None:
    found = {image.triton: image.critical for image in later_images.images(config)}
    assert (found["24.10"], found["25.08"], found["26.05"], found["26.06"]) == (6, 2, 1, 0)


def test_the_servers_are_those_of_the_bulletins(config: Config) -> None:
    """Both files name the server of a release."""
    written = config.holes.components["server"].versions
    found = {image.triton: image.server for image in later_images.images(config)}
    both = written.keys() & found.keys()
    assert len(both) > 10
    assert {name: written[name] for name in both} == {name: found[name] for name in both}


def test_the_page_has_them_and_says_that_nothing_is_built_on_them(config: Config) -> None:
    written = (ROOT / "docs" / "adding-a-release.md").read_text()
    table = later_images.table(config)
    assert f"<!-- later images -->\n{table}<!-- end -->" in written
    lines = {line.split("`")[1]: line for line in table.splitlines()[2:]}
    assert lines["nvcr.io/nvidia/tritonserver:26.06-py3"].endswith("CUDA as in `open-cuda13`; never tried |")
    assert lines["nvcr.io/nvidia/tritonserver:25.07-py3"].endswith("no: they need .so.13 |")
    cells = matrix.overview(config, bases=["ngc"]).cells
    assert not {cell.triton for cell in cells} & {"25.08", "26.06"}


def test_a_configuration_may_have_none(config: Config) -> None:
    without = replace(config, bases=config.bases.model_copy(update={"not_built": None}))
    assert later_images.images(without) == []


def test_the_base_of_our_libraries_must_have_a_cuda(config_folder: Path) -> None:
    spoil(config_folder, "bases.yaml", "  libraries: open-cuda13\n", "  libraries: ngc\n")
    with pytest.raises(ConfigError, match="'ngc' is no base with a CUDA of its own"):
        loader.load(config_folder)
