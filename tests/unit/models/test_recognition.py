"""The family of converted weights, by the names of their files alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ftbuild.config import loader
from ftbuild.models import proof, recognition
from ftbuild.models.recognition import Fit
from testing.weight_files import Model

MODELS = loader.own_models()


@pytest.mark.parametrize("family", ["gptj", "t5", "bert"])
def test_files_that_converters_write_fit_their_family_whether_they_are_read_or_not(
    family: str, tmp_path: Path
) -> None:
    place = Model(family, MODELS.families[family].converters[-1]).write(tmp_path)
    (place / "README.md").touch()
    names = proof.sizes(place)
    assert recognition.fits(names, MODELS)[0] == Fit(family, (), ())
    other = "notes.bin"
    assert recognition.fits([*names, other], MODELS)[0] == Fit(family, (), (other,))
