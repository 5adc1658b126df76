"""Reads buildcfg/ into frozen, validated models.

YAML 1.1 has traps that bite here: a duplicate key silently wins, `22.10` is the number 22.1, `075` is 61.
So duplicate and unknown keys are errors with file and line, and a version must be written as a string.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetPydanticSchema, ValidationError
from pydantic_core.core_schema import no_info_after_validator_function

from ftbuild.errors import ConfigError
from ftbuild.sm import Sm


def _is_version(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion as bad:
        raise ValueError(str(bad)) from bad
    return text


def _is_specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier as bad:
        raise ValueError(str(bad)) from bad
    return text


VersionText = Annotated[str, Field(strict=True), AfterValidator(_is_version)]
SpecifierText = Annotated[str, Field(strict=True), AfterValidator(_is_specifier)]
Release = Annotated[str, Field(strict=True, pattern=r"^\d\d\.\d\d$")]
SmNumber = Annotated[
    Sm,
    GetPydanticSchema(
        lambda _source, handler: no_info_after_validator_function(
            Sm, handler(Annotated[int, Field(strict=True, ge=10, le=999)])
        )
    ),
]
Commit = Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{40}$")]
Sha256 = Annotated[str, Field(strict=True, pattern=r"^sha256:[0-9a-f]{64}$")]
# Factors are numbers or names: "3 * hidden", "gpt.head_num * gpt.size_per_head".
Product = Annotated[str, Field(strict=True, pattern=r"^[\w.]+( \* [\w.]+)*$")]
Fact = Product | tuple[Product | int, ...]
Scalar = bool | int | float | str | None
CheckpointFormat = Literal["huggingface", "jax"]


class Model(BaseModel):
    """A frozen record that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SmFact(Model):
    """An SM architecture and the first CUDA toolkit that compiles for it."""

    cuda: VersionText = Field(description="first CUDA toolkit whose nvcc knows the architecture")
    name: str = Field(description="NVIDIA's name of the architecture")
    source: str = Field(description="where the fact stands")


class PatchedSm(Model):
    """An SM that the release compiles only with one of our patches."""

    patch: str = Field(description="series entry, as <component>/<file>")
    source: str


class ReleaseSms(Model):
    """Which SMs FasterTransformer of a release compiles."""

    builds: tuple[SmNumber, ...] = Field(description="without a patch of ours")
    source: str = Field(description="file and line upstream")
    patched: Mapping[SmNumber, PatchedSm] = {}


class ReleaseConfig(Model):
    """One Triton release and what upstream pairs with it."""

    server: VersionText = Field(description="version of Triton Inference Server")
    cuda: VersionText = Field(description="CUDA of NVIDIA's image of this release")
    driver: VersionText = Field(description="oldest driver that CUDA version runs on")
    source: str
    default_sms: tuple[SmNumber, ...] = Field(min_length=1, description="built when no SM is asked for")
    sms: ReleaseSms


class MatrixConfig(Model):
    """matrix.yaml: releases, SM architectures and the facts that decide which pairs exist."""

    image: str = Field(pattern=r"^[a-z0-9]+([._-][a-z0-9]+)*$", description="name of the images built")
    sms: Mapping[SmNumber, SmFact]
    releases: Mapping[Release, ReleaseConfig]


class Repository(Model):
    """A git repository and the place of its tree below the source tree (/src in the build)."""

    url: str = Field(description="git URL, or a path relative to this file")
    path: str = Field(description="where CMake expects the tree")
    mirrors: tuple[str, ...] = Field(default=(), description="tried in order after `url`")
    sparse: tuple[str, ...] = Field(default=(), description="only these folders are taken; empty: all")
    without: tuple[str, ...] = Field(default=(), description="files that no build reads (fnmatch patterns)")
    by_sm: Mapping[SmNumber, tuple[str, ...]] = Field(
        default={}, description="files that only a GPU of this SM, or of another one that names them, needs"
    )

    def left_out(self, sms: Collection[Sm]) -> tuple[str, ...]:
        """Patterns of the files that images of `sms` (none: of any) do not need.

        An image runs on every later SM too, as machine code or by way of its PTX.
        """
        kept = {pattern for sm, names in self.by_sm.items() if sm >= min(sms, default=0) for pattern in names}
        every = (pattern for names in self.by_sm.values() for pattern in names)
        return (*self.without, *(pattern for pattern in dict.fromkeys(every) if pattern not in kept))


class SourceRef(Model):
    """What a release takes from a repository."""

    ref: str = Field(description="full ref (refs/tags/..., refs/heads/...) or a 40-digit commit")
    version: VersionText | None = Field(default=None, description="version that patch ranges refer to")
    optional: bool = Field(default=False, description="no image to publish needs it: fetched when asked for")


class SourcesConfig(Model):
    """sources.yaml: repositories and the refs of each release."""

    repositories: Mapping[str, Repository]
    releases: Mapping[Release, Mapping[str, SourceRef]]

    def built(self, release: str) -> tuple[str, ...]:
        """The repositories that the images of a release are built from."""
        return tuple(name for name, source in self.releases[release].items() if not source.optional)


class LockedSource(Model):
    """A ref resolved to the commit and the tree that are built."""

    ref: str
    commit: Commit
    tree: Commit


class LockedBackport(Model):
    """An upstream commit applied by reference, and the hash of its diff."""

    tree: Commit
    diff: Sha256


class Lock(Model):
    """sources.lock.yaml, written by `invoke lock`."""

    sources: Mapping[Release, Mapping[str, LockedSource]] = {}
    backports: Mapping[str, Mapping[Commit, LockedBackport]] = {}
    bases: Mapping[str, Mapping[Release, Sha256]] = {}


class PatchRange(Model):
    """The component versions a series entry is meant for."""

    versions: SpecifierText


class PatchesConfig(Model):
    """patches.yaml: where the series lie and which component versions each entry is meant for."""

    directory: str = Field(description="folder of the series, relative to this file")
    ranges: Mapping[str, Mapping[str, PatchRange]]


class Requirements(Model):
    """Requirements files for pip, by the stage that installs them, relative to bases.yaml."""

    toolchain: str
    pyt: str
    runtime: str = Field(description="what the Python models of a model repository import")
    sdk: str


class LocalBase(Model):
    """A base that `invoke base` builds from a Dockerfile of ours."""

    dockerfile: str = Field(description="relative to bases.yaml; has the targets `serving` and `devel`")
    os_image: str = Field(description="the distribution's image it starts from")
    suite: str = Field(description="what debootstrap installs where no registry has that image")
    arguments: Mapping[str, str] = {}


class BaseConfig(Model):
    """An image to build on and to serve from."""

    image: str | None = Field(default=None, description="registry image; {release} is filled in")
    local: LocalBase | None = None
    cuda: VersionText | None = Field(default=None, description="null: the release's own")
    server: VersionText | None = Field(
        default=None, description="true server version; null: the release's own"
    )
    driver: VersionText | None = Field(
        default=None, description="oldest driver for the CUDA in it; null: the release's own"
    )
    releases: tuple[Release, ...] = Field(min_length=1)
    host_compiler: tuple[str, str] = Field(description="C and C++ compiler that this CUDA accepts")
    toolchain_packages: tuple[str, ...] = Field(
        default=(), description="Debian packages of the toolchain stage"
    )
    wheel_libraries: tuple[str, ...] = Field(
        default=(), description="folders of site-packages/nvidia that the pyt tree compiles against"
    )
    requirements: Requirements
    source: str


class BasesConfig(Model):
    """bases.yaml: the images that cells are built on."""

    default: str
    dockerfile: str = Field(description="the one recipe of all cells, relative to this file")
    bases: Mapping[str, BaseConfig]


class Layout(Model):
    """A script of ours that brings a checkpoint into the layout that a converter reads.

    Called inside the SDK image as `python3 SCRIPT LAYOUT CHECKPOINT TARGET WEIGHT_FILE...`.
    """

    script: str = Field(description="relative to this file; runs alone, with what the SDK image has")
    layout: str = Field(description="its first argument")
    unless: str | None = Field(default=None, description="a checkpoint with this file needs no script")


class Converter(Model):
    """A script of FasterTransformer that turns a checkpoint into weights, and how it is called.

    Facts are numbers of a model by our own names (layers, heads, hidden, ...); see `CheckpointConfig`.
    """

    ft: SpecifierText = Field(description="FasterTransformer versions that it is called so in")
    format: CheckpointFormat = Field(
        default="huggingface", description="what it reads; jax: Mesh Transformer JAX's step_<n> folder"
    )
    script: str = Field(description="relative to FasterTransformer's tree")
    arguments: tuple[str, ...] = Field(
        description="with {checkpoint}, {out}, {tensor_para}, {dtype}, {layers}, {jobs} to be filled in"
    )
    dtypes: tuple[str, ...] = Field(
        default=("fp32", "fp16"), min_length=1, description="data types that it writes, the default first"
    )
    modules: tuple[str, ...] = Field(
        default=(), description="Python modules it needs that the SDK image lacks"
    )
    layout: Layout | None = None
    assumes: Mapping[str, tuple[Scalar, ...]] = Field(
        default={}, description="values of config.json's keys (null: absent) that it can convert"
    )
    assumes_split: Mapping[str, tuple[Scalar, ...]] = Field(
        default={}, description="the same, for several GPUs"
    )
    fixed: Mapping[str, Product | int] = Field(
        default={}, description="facts for which it puts its own value, whatever the checkpoint says"
    )
    facts: Mapping[str, Product] = Field(
        description="facts from what it writes into config.ini, as section.key"
    )
    data_type: str = Field(description="section.key of the weights' data type in config.ini")
    config: Mapping[str, Mapping[str, str]] = Field(
        default={}, description="config.ini where it writes none: section -> key -> value"
    )
    files: Mapping[str, Product] = Field(
        min_length=1,
        description="every file below <n>-gpu/ and the number of its values. {fact} in a name counts from 0 "
        "up to that fact; {gpus} counts the GPUs, each of whose files holds an equal share",
    )


class CheckpointConfig(Model):
    """What a family's Hugging Face checkpoints say about themselves in config.json."""

    model_types: tuple[str, ...] = Field(min_length=1, description="values of its key model_type")
    facts: Mapping[str, Fact] = Field(
        description="our name of a number -> its key, or several to try, the last one maybe a number"
    )
    texts: Mapping[str, Mapping[str, int]] = Field(
        default={}, description="key whose value is a text -> number that a text stands for"
    )
    splits: tuple[str, ...] = Field(default=(), description="facts that the number of GPUs must divide")
    assumes: Mapping[str, tuple[Scalar, ...]] = Field(
        default={}, description="values of keys (null: absent) that FasterTransformer computes with"
    )


class Tensors(Model):
    """What a family's tensors are called, and what its answers hold."""

    prompt: str = Field(description="token ids, [batch, longest prompt]")
    prompt_length: str = Field(description="[batch, 1]")
    answer_length: str = Field(description="tokens wanted, [batch, 1]")
    repeats_prompt: bool = Field(description="whether an answer begins with its prompt")


class Family(Model):
    """A model family: one structure, whoever trained it."""

    checkpoint: CheckpointConfig
    converters: tuple[Converter, ...] = Field(min_length=1)
    served_as: str | None = Field(
        default=None, description="family as which its converted weights are served; null: itself"
    )
    tensors: Tensors
    streams: SpecifierText | None = Field(
        default=None, description="backend versions whose decoupled models answer token by token"
    )
    source: str


class ModelsConfig(Model):
    """models.yaml: the model families, from checkpoint to tensors."""

    device: Literal["gpu", "cpu"] = Field(description="what the backend computes on")
    reference: str = Field(
        description="script, relative to this file, that makes a checkpoint and says what it must answer"
    )
    families: Mapping[str, Family]


@dataclass(frozen=True)
class Config:
    """All of one buildcfg folder."""

    folder: Path
    matrix: MatrixConfig
    sources: SourcesConfig
    lock: Lock
    patches: PatchesConfig
    bases: BasesConfig
    models: ModelsConfig

    @property
    def patch_directory(self) -> Path:
        """Folder that holds `<component>/series`."""
        return self.path(self.patches.directory)

    def path(self, relative: str) -> Path:
        """A path of the configuration, which is relative to its folder."""
        return (self.folder / relative).resolve()

    def version(self, release: str, component: str) -> str:
        """The version of a component that patch ranges refer to; empty where the release has none of it."""
        source = self.sources.releases[release].get(component)
        return (source.version or "") if source else ""

    @property
    def lock_file(self) -> Path:
        """Path of the machine-written lock."""
        return self.folder / LOCK_FILE


LOCK_FILE = "sources.lock.yaml"
FILES: Mapping[str, type[Model]] = {
    "matrix.yaml": MatrixConfig,
    "sources.yaml": SourcesConfig,
    "patches.yaml": PatchesConfig,
    "bases.yaml": BasesConfig,
    "models.yaml": ModelsConfig,
    LOCK_FILE: Lock,
}


def load(folder: Path) -> Config:
    """Read and cross-check a buildcfg folder; ConfigError names file, line and key of what is wrong.

    A missing lock is an empty lock: what needs a pin says so itself.
    """
    if not folder.is_dir():
        raise ConfigError("the configuration folder does not exist", where=str(folder), hint="check --config")
    lock = _read(folder / LOCK_FILE, Lock) if (folder / LOCK_FILE).exists() else Lock()
    config = Config(
        folder=folder.resolve(),
        matrix=_read(folder / "matrix.yaml", MatrixConfig),
        sources=_read(folder / "sources.yaml", SourcesConfig),
        lock=lock,
        patches=_read(folder / "patches.yaml", PatchesConfig),
        bases=_read(folder / "bases.yaml", BasesConfig),
        models=_read(folder / "models.yaml", ModelsConfig),
    )
    for file, message in _contradictions(config):
        raise ConfigError(message, where=str(folder / file))
    return config


def schemas() -> dict[str, str]:
    """The JSON Schema of every file in a buildcfg folder, by schema file name, for editors and CI."""
    return {
        f"{Path(name).with_suffix('').name}.schema.json": json.dumps(model.model_json_schema(), indent=2)
        + "\n"
        for name, model in FILES.items()
    }


def _contradictions(config: Config) -> Iterator[tuple[str, str]]:
    """What only shows when the files are read together."""
    known = set(config.matrix.sms)
    for name, release in config.matrix.releases.items():
        for sm in {*release.default_sms, *release.sms.builds, *release.sms.patched} - known:
            yield "matrix.yaml", f"release {name} names SM {sm}, which `sms` does not describe"
        if name not in config.sources.releases:
            yield "sources.yaml", f"release {name} of matrix.yaml has no sources"
    for name, sources in config.sources.releases.items():
        for repository in set(sources) - set(config.sources.repositories):
            yield "sources.yaml", f"release {name} uses repository {repository!r}, which is not described"
    if config.bases.default not in config.bases.bases:
        yield "bases.yaml", f"the default base {config.bases.default!r} is not described"
    for name, base in config.bases.bases.items():
        if (base.image is None) == (base.local is None):
            yield "bases.yaml", f"base {name} needs exactly one of `image` and `local`"
        for missing in set(base.releases) - set(config.matrix.releases):
            yield "bases.yaml", f"base {name} names release {missing}, which matrix.yaml does not describe"
    for component in set(config.patches.ranges) - set(config.sources.repositories):
        yield "patches.yaml", f"component {component!r} is no repository of sources.yaml"
    for name, family in config.models.families.items():
        if family.served_as not in (None, *config.models.families):
            yield "models.yaml", f"{name} is served as {family.served_as!r}, which is no family"
        for fact in sorted(_unknown_facts(family)):
            yield "models.yaml", f"{name} uses the fact {fact!r}, which its checkpoints do not tell"


def _unknown_facts(family: Family) -> set[str]:
    """Names that formulas, files and splits use and nothing defines."""
    unknown = set(family.checkpoint.splits) - set(family.checkpoint.facts)
    for converter in family.converters:
        known = set(converter.fixed if converter.format == "jax" else family.checkpoint.facts) | {"gpus"}
        formulas = [*map(str, converter.fixed.values()), *converter.files.values()]
        factors = {factor for formula in formulas for factor in formula.split(" * ")}
        counters = {name for file in converter.files for name in re.findall(r"{(\w+)}", file)}
        used = {*converter.facts, *converter.fixed, *counters, *(f for f in factors if not f.isdigit())}
        unknown |= used - known
    return unknown


M = TypeVar("M", bound=Model)


def _read(file: Path, model: type[M]) -> M:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as missing:
        raise ConfigError("a configuration file is missing", where=str(file)) from missing
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
        data = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as broken:
        mark = broken.problem_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"not valid YAML: {broken.problem}", where=f"{file}{line}") from broken
    try:
        return model.model_validate(data)
    except ValidationError as invalid:
        raise ConfigError(
            _explain(invalid, file, node), hint="see docs/architecture.md, section Configuration"
        ) from None


def _explain(invalid: ValidationError, file: Path, root: yaml.Node | None) -> str:
    lines = []
    for error in invalid.errors():
        path = [str(part) for part in error["loc"] if part != "[key]"]
        message = _FRIENDLY.get(error["type"], _plain_message)(dict(error))
        lines.append(f"{file}:{_line(root, path)}: {'.'.join(path) or 'the file'}: {message}")
    return "\n".join(lines)


def _plain_message(error: dict[str, Any]) -> str:
    return str(error["msg"]).removeprefix("Value error, ")


_FRIENDLY: Mapping[str, Callable[[dict[str, Any]], str]] = {
    "extra_forbidden": lambda e: "unknown key",
    "missing": lambda e: "required, but missing",
    "string_type": lambda e: (
        f"must be text in quotes, not the number {e['input']} (YAML reads 22.10 as 22.1)"
        if isinstance(e["input"], int | float)
        else f"must be text, not {e['input']!r}"
    ),
}


def _line(node: yaml.Node | None, path: list[str]) -> int:
    """The 1-based line of the deepest node on `path` that exists."""
    line = 1
    while node is not None:
        if isinstance(node, yaml.MappingNode) and path:
            found = next(((k, v) for k, v in node.value if k.value == path[0]), None)
            if found is None:
                return line
            line, node, path = found[0].start_mark.line + 1, found[1], path[1:]
        elif (
            isinstance(node, yaml.SequenceNode)
            and path
            and path[0].isdigit()
            and int(path[0]) < len(node.value)
        ):
            node, path = node.value[int(path[0])], path[1:]
            line = node.start_mark.line + 1
        else:
            return line
    return line


# libyaml's parser, which PyYAML's wheels bring, is several times faster than the one in Python.
_Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc,valid-type]
    """SafeLoader to which a repeated key is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[Any, int] = {}
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"duplicate key {key!r} (first on line {seen[key]})", key_node.start_mark
                )
            seen[key] = key_node.start_mark.line + 1
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made

    def construct_decimal(self, node: yaml.ScalarNode) -> int:
        if len(node.value.lstrip("+-")) > 1 and node.value.lstrip("+-").startswith("0"):
            raise yaml.constructor.ConstructorError(
                None,
                None,
                f"{node.value} has a leading zero: YAML would read an octal number",
                node.start_mark,
            )
        return int(self.construct_yaml_int(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_decimal)
