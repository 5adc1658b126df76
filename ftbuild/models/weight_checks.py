"""Checks of converted weights before a repository is made of them: their family, their files, data types."""

from __future__ import annotations

from ftbuild.config.families import Int8, Loading, ModelsConfig
from ftbuild.errors import ConfigError
from ftbuild.models import config_ini, config_pbtxt, int8, proof, recognition, rotation, untrusted
from ftbuild.models.gpu_memory import COMPUTES_INT8

# What invoke convert writes beside the folder of the weights, and its key for files that fp16 cannot hold.
RECORD, BEYOND_FP16 = "conversion.json", "beyond_fp16"


def _loading(models: ModelsConfig, family: str) -> Loading | None:
    """Return what is known of a family's weights; None where nothing is."""
    return models.families[family].loading if family in models.families else None


def check_rotation(weights: config_ini.ConvertedModel, family: str, models: ModelsConfig, dtype: str) -> None:
    """Raise ConfigError for rotary positions that no kernel computes in that data type."""
    described = _loading(models, family)
    file = weights.folder / config_ini.FILE
    heads = rotation.of_values(described, config_ini.all_values(file)) if described else None
    if heads and (wrong := rotation.fault(*heads, dtype)):
        right = rotation.right_types(*heads)
        raise ConfigError(
            wrong,
            where=str(file),
            hint=f"--dtype {' or '.join(right)}" if right else "no data type computes it",
        )


def check_family(weights: config_ini.ConvertedModel, family: str, models: ModelsConfig) -> None:
    """Raise ConfigError for weights of another family than asked for, by config.ini or by their files."""
    described = _loading(models, family)
    # A family without a description cannot be recognized.
    families = recognition.best(proof.sizes(weights.folder), models) if described else ()
    if weights.family == family and (not families or family in families):
        return
    if weights.family in families or not any(of.loading for of in models.families.values()):
        raise ConfigError(
            f"these are weights of a {weights.family} model, not of a {family} model",
            where=str(weights.folder / config_ini.FILE),
            hint=f"--model {weights.family}, or other weights",
        )
    files = (
        f"the files are those of a {' or '.join(families)} model" if families else "its files are not here"
    )
    raise ConfigError(
        f"config.ini has the section of a {weights.family} model, but {files}",
        where=str(weights.folder),
        hint=config_pbtxt.adopt(weights.folder),
    )


def check_files(weights: config_ini.ConvertedModel, family: str, models: ModelsConfig) -> None:
    """Raise ConfigError unless every file that the backend will read is there, with its right size."""
    described = _loading(models, family)
    if described and (wrong := proof.contradictions(weights.folder, described, weights.tensor_para)):
        raise ConfigError(
            "\n    ".join(["config.ini and the weights do not fit:", *wrong]),
            where=str(weights.folder),
            hint=f"copy or convert the weights again; where another program than invoke convert wrote them: "
            f"{config_pbtxt.adopt(weights.folder)}",
        )


def check_int8(template: str, rule: Int8, weights: config_ini.ConvertedModel, dtype: str) -> None:
    """Raise ConfigError unless weights of this shape can be int8, and are computed with in fp16."""
    if not config_pbtxt.quantizes(template):
        raise ConfigError("this release has no int8 weights", hint="leave out --int8, or a later --triton")
    if dtype != COMPUTES_INT8:
        raise ConfigError(
            f"int8 weights are computed with in {COMPUTES_INT8}, not in {dtype}",
            hint=f"--dtype {COMPUTES_INT8}, or leave out --int8",
        )
    facts: dict[str, int] = {fact: weights.fact(fact) for fact in rule.multiples}
    if reasons := list(int8.obstacles(rule, facts, weights.tensor_para)):
        raise ConfigError(
            f"the weights of this model cannot be int8: {'; '.join(reasons)}",
            where=str(weights.folder / config_ini.FILE),
            hint="fewer --gpus, or leave out --int8" if weights.tensor_para > 1 else "leave out --int8",
        )


def check_range(weights: config_ini.ConvertedModel, dtype: str) -> None:
    """Raise ConfigError where invoke convert found values that the server would make infinite in fp16."""
    record = weights.folder.resolve().parent / RECORD
    if dtype != "fp16" or not record.is_file():
        return
    beyond = untrusted.json_object(record, "the record of a conversion", "convert again").get(BEYOND_FP16)
    if isinstance(beyond, list) and beyond:
        more = f" and {len(beyond) - 1} more" if len(beyond) > 1 else ""
        raise ConfigError(
            f"{untrusted.plain(str(beyond[0]))}{more} has values that are infinite in fp16",
            where=str(weights.folder),
            hint="--dtype bf16 or fp32",
        )
