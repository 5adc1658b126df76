"""Schema of models.yaml: the model families, from checkpoint to tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from packaging.specifiers import SpecifierSet
from pydantic import Field, StrictInt, model_validator

from ftbuild.config.checkpoints import (
    CheckpointConfig,
    CheckpointFormat,
    Converter,
    Fact,
    FileNames,
    Formula,
    IniKey,
    Natural,
    SettingPattern,
    Settings,
)
from ftbuild.config.types import (
    FilePath,
    Identifier,
    Model,
    Name,
    Source,
    SpecifierText,
    Text,
)

# What is allocated -> the number of its values. With {gpus} in the key, each GPU holds an equal share.
Allocations = Mapping[Text, Formula]
# What such a formula may name besides the facts of a model; see GpuMemory.
REQUEST_FACTS = frozenset(
    {"batch", "beams", "rows", "input", "output", "length", "padded_vocabulary", "padding"}
)


class Tensors(Model):
    """Names of a family's tensors, and the form of its answers."""

    prompt: Identifier = Field(description="token ids, [batch, longest prompt]")
    prompt_length: Identifier = Field(description="[batch, 1]")
    answer_length: Identifier = Field(description="tokens wanted, [batch, 1]")
    repeats_prompt: bool = Field(description="whether an answer begins with its prompt")


class Embedding(Model):
    """What a Python model of ours looks up for a backend that begins with hidden states.

    That is the sum of one row of each table, normalized: a token's, its position's, and the first row of the
    types (segments).
    """

    words: FileNames = Field(description="weight file with a row for each token")
    positions: FileNames = Field(description="with a row for each position")
    types: FileNames = Field(description="with a row for each type of token, of which the first counts")
    scale: FileNames = Field(description="of the norm: its factors")
    shift: FileNames = Field(description="of the norm: its summands")
    epsilon: Identifier = Field(description="key of config.ini with what the norm adds to the variance")

    @property
    def files(self) -> tuple[str, ...]:
        """The weight files that are read by the Python model, and not by the backend."""
        return (self.words, self.positions, self.types, self.scale, self.shift)


class Instead(Model):
    """Files that FasterTransformer reads in place of others."""

    when: Identifier = Field(description="fact that must not be 0; int8_mode is config.pbtxt's")
    equals: Natural | None = Field(default=None, description="what it must be; null: anything but 0")
    layers: IniKey | None = Field(
        default=None, description="key of config.ini that lists the layers concerned; null: all"
    )
    replaces: tuple[FileNames, ...] = Field(description="keys of `files` that are not read then")
    files: Mapping[FileNames, Formula] = Field(description="what is read then, as in `files`")
    types: Mapping[FileNames, Literal["fp32", "int8"]] = Field(
        default={}, description="type of a file of them that is not config.ini's"
    )


class Prompts(Model):
    """Tables of learned prompts, one for each task that config.ini describes in a section [task_<i>]."""

    count: IniKey = Field(description="key with the number of tasks")
    kind: IniKey = Field(description="key with FasterTransformer's number of the kind of prompt")
    files: Mapping[Natural, Mapping[FileNames, Formula]] = Field(
        description="kind -> file, with {task} for the name of a task, and its values for each token"
    )


class LoadedPart(Model):
    """What one class of FasterTransformer reads from a folder <n>-gpu, given its config.ini.

    Facts are the numbers that sizes depend on, by our own names, and switches (0 or 1).
    """

    data_type: IniKey = Field(description="section.key of the weights' data type in config.ini")
    facts: Mapping[Identifier, Fact] = Field(
        description="fact -> section.key of config.ini, or several to try, the last one maybe a number"
    )
    texts: Mapping[Identifier, Mapping[Text, StrictInt]] = Field(
        default={}, description="fact whose key is a text -> number that a text stands for; any other: 0"
    )
    files: Mapping[FileNames, Formula] = Field(description="names and sizes, as of `Converter`")
    only_if: Mapping[FileNames, Formula] = Field(
        default={}, description="file of them -> what must not be 0 for it to be read"
    )
    unread: tuple[FileNames, ...] = Field(
        default=(), description="beginnings of names of `files` that it does not read"
    )
    more: Mapping[FileNames, Formula] = Field(
        default={}, description="further files; with 0 values it is not read"
    )
    optional: Mapping[FileNames, Formula | Natural] = Field(
        default={}, description="file that is read if it is there -> 0 where it must be there"
    )
    spare: tuple[FileNames, ...] = Field(
        default=(), description="files that some converters write for models that do not read them"
    )
    rows: Mapping[FileNames, Formula | Natural] = Field(
        default={}, description="table that may have more rows than are read -> values of a row"
    )
    instead: tuple[Instead, ...] = Field(default=(), description="files that are read in place of others")
    prompts: Prompts | None = Field(default=None, description="null: it reads no learned prompts")
    keys: Mapping[IniKey, tuple[Identifier, ...]] = Field(
        description="key that it reads without a default -> names that config.ini of other converters and "
        "config.pbtxt of backend 1.1 have for it"
    )
    more_keys: Mapping[IniKey, tuple[Identifier, ...]] = Field(
        default={}, description="the same for keys with a default"
    )
    asks: Mapping[IniKey, Formula] = Field(
        default={},
        description="key whose default is no guess for adopted weights -> what must not be 0 for it to be "
        "asked for; `undescribed` is 1 where there is no config.ini",
    )
    words: Mapping[IniKey, Mapping[Text, Text]] = Field(
        default={}, description="key -> word of others -> the word that it reads"
    )


Pairs = Literal["neighbours", "halves"]


class Rotates(Model):
    """Rotary positions, by config.ini."""

    head: IniKey = Field(description="key with the values of a head")
    values: IniKey = Field(description="key with the number of them that are rotated, the first ones")
    pairs: Pairs = Field(description="what is rotated together: neighbours, or a value of each half")


class Loading(Model):
    """What the backend reads of a model's converted weights.

    A missing or short file is a line of its log and random weights (FT v5.3 memory_utils.cu:300-336), so the
    folder is compared with this before it is served.
    """

    model_type: Text = Field(description="of the model in config.pbtxt")
    parts: tuple[LoadedPart, ...] = Field(min_length=1, description="by class: encoder, decoder or both")
    rotates: Rotates | None = Field(default=None, description="null: its positions are others")
    source: Source


class Vectors(Model):
    """A family that answers token ids with a vector.

    Its backend gives the states of the last layer. It begins with hidden states, or with token ids.
    """

    hidden: Identifier = Field(description="key of config.ini with the number of values of a vector")
    embedding: Embedding | None = Field(
        default=None, description="of a backend that begins with hidden states; null: it takes token ids"
    )
    longest: Annotated[StrictInt, Field(gt=0, lt=2**31)] | None = Field(
        default=None,
        description="tokens of a text that the backend takes; null: as many as `embedding` has positions",
    )

    @property
    def files(self) -> tuple[str, ...]:
        """The weight files that are read by a Python model, and not by the backend."""
        return self.embedding.files if self.embedding else ()

    @model_validator(mode="after")
    def _limits_texts_once(self) -> Self:
        if (self.embedding is None) == (self.longest is None):
            raise ValueError("exactly one of embedding and longest is needed")
        return self


class GpuMemory(Model):
    """What a served model allocates on each of its GPUs, as formulas over facts and the size of a request.

    Besides the family's facts a formula may name `batch`, `beams`, `rows` (batch x beams), `input`, `output`,
    `length` (input + output), `padded_vocabulary` and `padding` (1 where the vocabulary is padded, else 0).
    """

    source: Text = Field(description="file and line upstream")
    bf16: SpecifierText | None = Field(
        default=None, description="backend versions that compute in bf16; null: none"
    )
    weights: Allocations = Field(default={}, description="values of weights that no file has")
    unread: tuple[FileNames, ...] = Field(
        default=(), description="keys of the converters' `files` that the backend does not load"
    )
    cache: Allocations = Field(default={}, description="values that keys and values take during a request")
    buffers: Allocations = Field(description="other values of a request")
    words: Allocations = Field(default={}, description="numbers of a request that take 4 bytes in every type")

    def computes_bf16(self, backend: str) -> bool:
        """Return whether the backend of that version computes in bf16."""
        return self.bf16 is not None and backend in SpecifierSet(self.bf16)


class Int8(Model):
    """Weights that the backend can keep as int8: quantized as it loads them, computed with in fp16.

    Every column of a matrix has a scale. Its kernels take whole blocks of rows, so not every size will do.
    """

    backend: SpecifierText = Field(description="backend versions that compute so")
    files: tuple[FileNames, ...] = Field(
        min_length=1, description="keys of the converters' `files`: the matrices that become int8"
    )
    scales: Allocations = Field(description="values of fp16 that the scales take")
    multiples: Mapping[Literal["hidden", "inner"], Annotated[StrictInt, Field(gt=0, lt=2**31)]] = Field(
        description="facts of which each GPU's share must be a multiple"
    )
    source: Source


class Family(Model):
    """A model family: models of one structure."""

    title: Text | None = Field(default=None, description="its name in the documentation; null: its key")
    checkpoint: CheckpointConfig = Field(description="how its checkpoints are told and described")
    converters: tuple[Converter, ...] = Field(
        min_length=1, description="each for the FasterTransformer versions that it can run on"
    )
    served_as: Name | None = Field(
        default=None, description="family as which its converted weights are served; null: itself"
    )
    tensors: Tensors | None = Field(default=None, description="of a family that answers with tokens")
    vectors: Vectors | None = Field(default=None, description="of one that answers with vectors")
    streams: SpecifierText | None = Field(
        default=None, description="backend versions whose decoupled models answer token by token"
    )
    gpu_memory: GpuMemory | None = Field(
        default=None, description="for `invoke plan-model`; null: that of the family as which it is served"
    )
    int8: Int8 | None = Field(default=None, description="null: it has no int8 weights")
    loading: Loading | None = Field(
        default=None, description="of a family of the backend's own; null: its weights are not compared"
    )
    source: Source

    @model_validator(mode="after")
    def _answers_in_one_form(self) -> Self:
        if (self.tensors is None) == (self.vectors is None):
            raise ValueError("exactly one of tensors and vectors is needed")
        return self

    def converter(self, version: str, kind: CheckpointFormat = "huggingface") -> Converter | None:
        """Return the converter of FasterTransformer `version` for checkpoints of a kind, or None."""
        return next(
            (
                found
                for found in self.converters
                if found.format == kind and version in SpecifierSet(found.ft)
            ),
            None,
        )


class ExtraModel(Model):
    """A model of a family, beside the family's own, that the reference makes for the smoke test."""

    family: Name = Field(description="whose converters and tensors it has")
    ft: SpecifierText = Field(default=">=0", description="FasterTransformer versions that convert it")
    gpus: Literal[2, 4] = Field(default=2, description="the most GPUs that its weights are split over")


class ModelsConfig(Model):
    """models.yaml: the model families, from checkpoint to tensors."""

    device: Literal["gpu", "cpu"] = Field(description="what the backend computes on")
    reference: FilePath = Field(
        description="script, relative to this file, that makes a checkpoint and its expected answers"
    )
    reference_modules: tuple[FilePath, ...] = Field(
        default=(), description="modules that it imports, which are put beside it; relative to this file"
    )
    assumes: Settings = Field(
        default={}, description="as `checkpoint.assumes` of a family, for all that do not name the key"
    )
    neutral: tuple[SettingPattern, ...] = Field(
        default=(), description="keys of config.json that change nothing of what any family computes"
    )
    extra: Mapping[Name, ExtraModel] = Field(default={}, description="more models that the reference makes")
    families: Mapping[Name, Family] = Field(description="by the name for `--model`")

    @model_validator(mode="after")
    def _extra_models_have_families(self) -> Self:
        for name, model in self.extra.items():
            if model.family not in self.families or name in self.families:
                raise ValueError(f"extra.{name}: {model.family} is no family, or {name} is one")
        return self

    def served(self, version: str) -> tuple[str, ...]:
        """Return the families whose checkpoints from Hugging Face FasterTransformer `version` converts."""
        return tuple(name for name, family in self.families.items() if family.converter(version))

    def loading(self, model_type: str) -> Loading | None:
        """Return what the backend reads of models of a type, None where that is not described."""
        found = (family.loading for family in self.families.values() if family.loading)
        return next((loading for loading in found if loading.model_type == model_type), None)

    def extra_models(self, version: str) -> Mapping[str, str]:
        """Return the family of each extra model that FasterTransformer `version` converts, by its name."""
        served = self.served(version)
        return {
            name: model.family
            for name, model in self.extra.items()
            if model.family in served and version in SpecifierSet(model.ft)
        }

    def gpus(self, name: str) -> int:
        """Return the most GPUs that the weights of a model of the smoke test are split over."""
        return self.extra[name].gpus if name in self.extra else 2

    def template(self, family: str) -> str:
        """Return the family whose models of upstream serve `family`: itself, or that of `served_as`."""
        return self.families[family].served_as or family
