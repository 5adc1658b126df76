"""Whether the tokenizer in a model repository fits the weights beside it, as when the repository was made."""

from __future__ import annotations

from pathlib import Path

from ftbuild.models import config_ini, config_pbtxt, ensemble, fit, tokenizer, vector_models
from ftserve.requirements import Needs

# Where a repository has the tokenizer of its models for text.
TEXTS = f"{ensemble.PREPROCESSING}/{config_pbtxt.VERSION}/{ensemble.TOKENIZER}"


def places() -> tuple[str, ...]:
    """Return where in a repository a tokenizer may lie, that of an ensemble of vectors first."""
    return (*vector_models.tokenizer_places(), TEXTS)


def warnings(models: Path, needs: Needs) -> tuple[str, ...]:
    """Return what of the tokenizer contradicts the weights; ConfigError where answers would be wrong."""
    folder = next((models / place for place in places() if tokenizer.is_in(models / place)), None)
    weights = next((each for each in needs.weights if each.model == config_pbtxt.MODEL and each.exists), None)
    if folder is None or weights is None or not (models / weights.folder / config_ini.FILE).is_file():
        return ()
    return fit.check(folder, fit.of_weights(config_ini.read(models / weights.folder)))
