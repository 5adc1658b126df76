"""NVIDIA's later images as data: which of them our libraries fit, and what the matrix says of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ftbuild import matrix, not_built
from ftbuild.cli import explain
from ftbuild.config import loader
from ftbuild.config.schema import Config
from ftbuild.errors import ConfigError
from tests.unit.config.test_config import spoil


def test_an_image_fits_if_it_has_the_cuda_of_our_libraries(config: Config) -> None:
    found = {image.triton: image for image in not_built.images(config)}
    assert next(name for name, image in found.items() if image.fits) == "25.08"
    assert not found["25.07"].fits
    described = config.bases.not_built
    assert described
    older = described.model_copy(update={"libraries": "open"})  # CUDA 11.8
    changed = replace(config, bases=config.bases.model_copy(update={"not_built": older}))
    assert not any(image.fits for image in not_built.images(changed))


def test_an_image_has_the_critical_holes_of_its_server(config: Config) -> None:
    found = {image.triton: image.critical for image in not_built.images(config)}
    assert (found["24.10"], found["25.08"], found["26.05"], found["26.06"]) == (6, 2, 1, 0)


def test_the_servers_are_those_of_the_bulletins(config: Config) -> None:
    """Both files name the server of a release."""
    written = config.holes.components["server"].versions
    found = {image.triton: image.server for image in not_built.images(config)}
    both = written.keys() & found.keys()
    assert len(both) > 10
    assert {name: written[name] for name in both} == {name: found[name] for name in both}


def test_the_matrix_says_that_nothing_is_built_on_them(config: Config) -> None:
    images = not_built.images(config)
    text = explain.not_built(images)
    lines = {line.split()[0]: line for line in text.splitlines()}
    assert text.startswith("Not built here")
    assert lines["nvcr.io/nvidia/tritonserver:26.06-py3"].endswith("CUDA as in open-cuda13; never tried")
    assert lines["nvcr.io/nvidia/tritonserver:25.07-py3"].endswith("no: open-cuda13 needs .so.13")
    data = json.loads(matrix.as_json(config, matrix.make_matrix(config), images))
    assert data["not_built"][0]["image"] == "nvcr.io/nvidia/tritonserver:24.10-py3"
    assert data["not_built"][0]["source"].endswith("build.py: r24.10, line 1474")
    assert not {cell["triton"] for cell in data["cells"]} & {"25.08", "26.06"}


def test_a_configuration_may_have_none(config: Config) -> None:
    without = replace(config, bases=config.bases.model_copy(update={"not_built": None}))
    assert not_built.images(without) == []
    assert json.loads(matrix.as_json(without, matrix.make_matrix(without)))["not_built"] == []


def test_the_base_of_our_libraries_must_have_a_cuda(config_folder: Path) -> None:
    spoil(config_folder, "bases.yaml", "  libraries: open-cuda13\n", "  libraries: ngc\n")
    with pytest.raises(ConfigError, match="'ngc' is no base with a CUDA of its own"):
        loader.load(config_folder)
