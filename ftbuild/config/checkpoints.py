"""Schema of models.yaml, the part about checkpoints: what one is, and which program converts it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, StrictInt, model_validator

from ftbuild.config.types import (
    FilePath,
    Identifier,
    Model,
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
_KEY = "[A-Za-z_][A-Za-z0-9_]*"
SettingKey = Annotated[
    str, Shape(rf"{_KEY}(?:\.{_KEY})*", "a key of config.json, `a.b` for b in the object a")
]
Settings = Mapping[SettingKey, tuple[Scalar, ...]]
SettingPattern = Annotated[
    str, Shape(r"[A-Za-z_*][A-Za-z0-9_.*]*", "a key of config.json, maybe with * for any letters")
]
Real = Annotated[float, Field(gt=0, lt=float("inf"))]
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

    Called inside the SDK image as `python3 SCRIPT LAYOUT CHECKPOINT TARGET [--config=JSON] FILE...`; JSON is
    the config.json of a checkpoint that has none, or has one in the words of transformers 5.
    """

    script: FilePath = Field(description="relative to this file; runs alone, with what the SDK image has")
    layout: Identifier = Field(description="its first argument")
    links: bool = Field(
        default=False,
        description="it writes config.json alone, as transformers 4 has it, and links the weights: called "
        "only for a checkpoint whose config.json says it in another way",
    )
    unless: TreePath | None = Field(default=None, description="a checkpoint with this file needs no script")


class Converter(Model):
    """A script that turns a checkpoint into weights, and how it is called.

    It is FasterTransformer's, or our own; that one gets the names of the weight files after its arguments.
    Facts are numbers of a model by our own names (layers, heads, hidden, ...); see `CheckpointConfig`.
    """

    ft: SpecifierText = Field(description="FasterTransformer versions with this command line")
    format: CheckpointFormat = Field(
        default="huggingface", description="what it reads; jax: a step_<n> folder of Mesh Transformer JAX"
    )
    script: TreePath | None = Field(default=None, description="relative to FasterTransformer's tree")
    own_script: FilePath | None = Field(
        default=None,
        description="in place of that: relative to this file; runs alone, with what the SDK image has",
    )
    own_modules: tuple[FilePath, ...] = Field(
        default=(), description="modules that it imports, which are put beside it; relative to this file"
    )
    arguments: tuple[Argument, ...] = Field(
        description="with {checkpoint}, {out}, {tensor_para}, {dtype}, {layers}, {jobs} to be filled in"
    )
    dtypes: tuple[DataType, ...] = Field(
        default=("fp32", "fp16"), min_length=1, description="data types that it writes, the default first"
    )
    holds: Literal["fp32", "checkpoint", "tensor"] = Field(
        default="fp32",
        description="what its memory holds: the whole model as fp32 or as the checkpoint is, or a tensor",
    )
    layout: Relayout | None = Field(default=None, description="null: it reads checkpoints as they are")
    settings: Mapping[Identifier, Scalar] = Field(
        default={}, description="config.json of a jax checkpoint, which comes without one"
    )
    assumes: Settings = Field(
        default={}, description="values of config.json's keys (null: absent) that it can convert"
    )
    fixed: Mapping[Identifier, Formula | Natural] = Field(
        default={}, description="facts to which it gives a value of its own, whatever the checkpoint has"
    )
    facts: Mapping[Identifier, Formula] = Field(
        description="facts from what it writes into config.ini, as section.key"
    )
    data_type: IniKey = Field(description="section.key of the weights' data type in config.ini")
    config: Mapping[Text, Mapping[Text, Text]] = Field(
        default={},
        description="section -> key -> value (with facts and reals in braces) of config.ini that it does not "
        "write, or not for every checkpoint",
    )
    files: Mapping[FileNames, Formula] = Field(
        min_length=1,
        description="every file below <n>-gpu/ and the number of its values. {fact} in a name counts from 0 "
        "up to that fact; {gpus} counts the GPUs, each of whose files holds an equal share",
    )

    @property
    def name(self) -> str:
        """The path of its script."""
        return self.script or self.own_script or ""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if (self.script is None) == (self.own_script is None):
            raise ValueError("exactly one of script and own_script is needed")
        if self.own_modules and not self.own_script:
            raise ValueError("own_modules are for an own_script")
        named = set().union(*(fields(argument, ARGUMENT_FIELDS) for argument in self.arguments))
        if missing := sorted({"checkpoint", "out"} - named):
            raise ValueError(f"the arguments lack {' and '.join(f'{{{name}}}' for name in missing)}")
        if self.format == "jax" and not self.settings:
            raise ValueError("a jax checkpoint has no config.json: settings must stand for it")
        return self


class Derived(Model):
    """A key of config.json whose value follows from another key's, where it is there at all."""

    of: SettingKey = Field(description="the other key")
    values: Mapping[Text, tuple[Scalar, ...]] = Field(
        description="value of the other key -> what this one may be then"
    )


class Head(Model):
    """The matrix that makes logits of the last states, and the table of embeddings that it may be, too."""

    names: tuple[Text, ...] = Field(min_length=1, description="names of its tensor in a checkpoint")
    tables: tuple[Text, ...] = Field(min_length=1, description="names of the table's tensor")
    tied: bool = Field(description="whether they are one where config.json has no tie_word_embeddings")


class CheckpointConfig(Model):
    """The numbers of a family in config.json of its Hugging Face checkpoints.

    Every key of config.json must be known: it is carried over (`facts`, `reals`), has a value with which
    FasterTransformer computes (`assumes`, `derived`, `equal`), or changes no answer (`neutral`).
    """

    model_types: tuple[Text, ...] = Field(min_length=1, description="values of its key model_type")
    facts: Mapping[Identifier, Fact] = Field(
        description="our name of a number -> its key, or several to try, the last one maybe a number"
    )
    reals: Mapping[Identifier, tuple[SettingKey | Real, ...]] = Field(
        default={},
        description="the same for numbers that need not be whole, the last one a number: for config.ini, not "
        "for sizes of files",
    )
    aliases: Mapping[Identifier, Identifier] = Field(
        default={}, description="other name of a key, by which transformers knows it, too -> the key"
    )
    derived: Mapping[SettingKey, Derived] = Field(
        default={}, description="keys whose value must be what another key says"
    )
    equal: Mapping[Identifier, Formula] = Field(
        default={},
        description="fact -> formula over keys of config.json that must give it, if they are there",
    )
    multiples: Mapping[Identifier, Formula | Natural] = Field(
        default={}, description="fact -> the fact, or the number, that must divide it"
    )
    head: Head | None = Field(default=None, description="null: not compared")
    neutral: tuple[SettingPattern, ...] = Field(
        default=(), description="keys that change nothing of what is computed, besides those of all families"
    )
    texts: Mapping[Identifier, Mapping[Text, StrictInt]] = Field(
        default={}, description="key whose value is a text -> number that a text stands for"
    )
    splits: tuple[Identifier, ...] = Field(
        default=(), description="facts that the number of GPUs must divide"
    )
    head_sizes: Mapping[SpecifierText, tuple[Natural, ...]] = Field(
        default={},
        description="FasterTransformer versions -> sizes of a head (hidden / heads, or the fact head_size) "
        "that they compute; none named: any",
    )
    rotary: Identifier | None = Field(
        default=None,
        description="fact with the number of values of a head that are rotated, or real with their share",
    )
    at_most: Mapping[Identifier, Natural] = Field(
        default={}, description="facts of which FasterTransformer takes no more: a larger one counts as this"
    )
    assumes: Settings = Field(
        default={}, description="values of keys (null: absent) that FasterTransformer computes with"
    )

    @model_validator(mode="after")
    def _reals_have_defaults(self) -> Self:
        if odd := [name for name, keys in self.reals.items() if not keys or isinstance(keys[-1], str)]:
            raise ValueError(f"the last alternative of {', '.join(odd)} must be a number")
        return self
