"""Schema of models.yaml: the model families, from checkpoint to tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from packaging.specifiers import SpecifierSet
from pydantic import Field, StrictInt, model_validator

from ftbuild.config.types import (
    FilePath,
    Identifier,
    Model,
    Name,
    Shape,
    SpecifierText,
    Text,
    TreePath,
    fields,
)

_FACTOR = "[A-Za-z0-9_.]+"
# Factors are numbers or names: "3 * hidden", "gpt.head_num * gpt.size_per_head".
Formula = Annotated[str, Shape(rf"{_FACTOR}(?: \* {_FACTOR})*", "numbers and names with ' * ' between them")]
Natural = Annotated[StrictInt, Field(ge=0, lt=2**63)]
Fact = Formula | tuple[Formula | Natural, ...]
Scalar = bool | int | float | Text | None
IniKey = Annotated[str, Shape(rf"[A-Za-z0-9_-]+\.{_FACTOR}", "SECTION.KEY of config.ini")]
FileNames = Annotated[
    str,
    Shape(
        r"(?:[A-Za-z0-9_-]|\{[A-Za-z_]+\}|\.(?!\.))+",
        "a plain file name, maybe with names of facts in braces",
    ),
]
ARGUMENT_FIELDS = frozenset({"checkpoint", "out", "tensor_para", "dtype", "layers", "jobs"})
Argument = Annotated[
    str,
    Shape(r"[^\x00-\x1f\x7f]+", "one line of text", check=lambda text: fields(text, ARGUMENT_FIELDS)),
]
DataType = Literal["fp32", "fp16"]
CheckpointFormat = Literal["huggingface", "jax"]


class Relayout(Model):
    """A script of ours that brings a checkpoint into the layout that a converter reads.

    Called inside the SDK image as `python3 SCRIPT LAYOUT CHECKPOINT TARGET WEIGHT_FILE...`.
    """

    script: FilePath = Field(description="relative to this file; runs alone, with what the SDK image has")
    layout: Identifier = Field(description="its first argument")
    unless: TreePath | None = Field(default=None, description="a checkpoint with this file needs no script")


class Converter(Model):
    """A script of FasterTransformer that turns a checkpoint into weights, and how it is called.

    Facts are numbers of a model by our own names (layers, heads, hidden, ...); see `CheckpointConfig`.
    """

    ft: SpecifierText = Field(description="FasterTransformer versions with this command line")
    format: CheckpointFormat = Field(
        default="huggingface", description="what it reads; jax: a step_<n> folder of Mesh Transformer JAX"
    )
    script: TreePath = Field(description="relative to FasterTransformer's tree")
    arguments: tuple[Argument, ...] = Field(
        description="with {checkpoint}, {out}, {tensor_para}, {dtype}, {layers}, {jobs} to be filled in"
    )
    dtypes: tuple[DataType, ...] = Field(
        default=("fp32", "fp16"), min_length=1, description="data types that it writes, the default first"
    )
    modules: tuple[Text, ...] = Field(
        default=(), description="Python modules it needs that the SDK image lacks"
    )
    layout: Relayout | None = None
    assumes: Mapping[Identifier, tuple[Scalar, ...]] = Field(
        default={}, description="values of config.json's keys (null: absent) that it can convert"
    )
    assumes_split: Mapping[Identifier, tuple[Scalar, ...]] = Field(
        default={}, description="the same, for several GPUs"
    )
    fixed: Mapping[Identifier, Formula | Natural] = Field(
        default={}, description="facts to which it gives a value of its own, whatever the checkpoint has"
    )
    facts: Mapping[Identifier, Formula] = Field(
        description="facts from what it writes into config.ini, as section.key"
    )
    data_type: IniKey = Field(description="section.key of the weights' data type in config.ini")
    config: Mapping[Text, Mapping[Text, Text]] = Field(
        default={}, description="config.ini to write where it writes none: section -> key -> value"
    )
    files: Mapping[FileNames, Formula] = Field(
        min_length=1,
        description="every file below <n>-gpu/ and the number of its values. {fact} in a name counts from 0 "
        "up to that fact; {gpus} counts the GPUs, each of whose files holds an equal share",
    )

    @model_validator(mode="after")
    def _names_input_and_output(self) -> Self:
        named = set().union(*(fields(argument, ARGUMENT_FIELDS) for argument in self.arguments))
        if missing := sorted({"checkpoint", "out"} - named):
            raise ValueError(f"the arguments lack {' and '.join(f'{{{name}}}' for name in missing)}")
        return self


class CheckpointConfig(Model):
    """The numbers of a family in config.json of its Hugging Face checkpoints."""

    model_types: tuple[Text, ...] = Field(min_length=1, description="values of its key model_type")
    facts: Mapping[Identifier, Fact] = Field(
        description="our name of a number -> its key, or several to try, the last one maybe a number"
    )
    texts: Mapping[Identifier, Mapping[Text, StrictInt]] = Field(
        default={}, description="key whose value is a text -> number that a text stands for"
    )
    splits: tuple[Identifier, ...] = Field(
        default=(), description="facts that the number of GPUs must divide"
    )
    assumes: Mapping[Identifier, tuple[Scalar, ...]] = Field(
        default={}, description="values of keys (null: absent) that FasterTransformer computes with"
    )


class Tensors(Model):
    """Names of a family's tensors, and the form of its answers."""

    prompt: Identifier = Field(description="token ids, [batch, longest prompt]")
    prompt_length: Identifier = Field(description="[batch, 1]")
    answer_length: Identifier = Field(description="tokens wanted, [batch, 1]")
    repeats_prompt: bool = Field(description="whether an answer begins with its prompt")


class Family(Model):
    """A model family: models of one structure."""

    checkpoint: CheckpointConfig
    converters: tuple[Converter, ...] = Field(min_length=1)
    served_as: Name | None = Field(
        default=None, description="family as which its converted weights are served; null: itself"
    )
    tensors: Tensors
    streams: SpecifierText | None = Field(
        default=None, description="backend versions whose decoupled models answer token by token"
    )
    source: Text

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


class ModelsConfig(Model):
    """models.yaml: the model families, from checkpoint to tensors."""

    device: Literal["gpu", "cpu"] = Field(description="what the backend computes on")
    reference: FilePath = Field(
        description="script, relative to this file, that makes a checkpoint and its expected answers"
    )
    families: Mapping[Name, Family]

    def served(self, version: str) -> tuple[str, ...]:
        """Return the families that FasterTransformer `version` converts and serves as themselves."""
        return tuple(
            name
            for name, family in self.families.items()
            if family.served_as is None and family.converter(version)
        )
