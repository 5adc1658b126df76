"""Requirements of a model repository: GPUs, data types, memory, readable files.

Reads config.pbtxt and config.ini, the names and the sizes of files; weights are not opened.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ftbuild import triton
from ftbuild.config.families import ModelsConfig
from ftbuild.errors import ConfigError
from ftbuild.models import config_ini, config_pbtxt, left_out, proof, untrusted
from ftbuild.models.config_ini import MAX_GPUS
from ftbuild.models.config_pbtxt import MAKE_AGAIN
from ftbuild.models.left_out import Needed

BACKEND = "fastertransformer"
# A configuration takes milliseconds to read; no server has so many models.
MAX_MODELS = 500
# The backend's own, where config.pbtxt has none (patches/backend/0171).
REQUEST_SECONDS = 600
MAX_SECONDS = 10**9
_WEIGHTS = re.compile(r"([1-9][0-9]{0,3})-gpu")
_NUMBER = re.compile(r"-?[0-9]{1,10}")
_CHECKPOINT, _FILENAME = "model_checkpoint_path", "default_model_filename"
_VERSION = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class Weights:
    """A model of the FasterTransformer backend.

    `folder` is where the backend looks for its weights, inside of the repository; `split` are the numbers
    of GPUs that there are weights for beside it. `instances` is the count of its instance group. `data_types`
    are those that the backend can compute it in.
    `request_seconds` is how long a request may take until the backend ends the server; 0: as long as it does.
    `named` is the parameter that names another folder than `<n>-gpu`, with its value. `defects` are
    contradictions between config.ini and the files (see `models.proof`). `experts`: whether its
    layers have them. `head_size` is None where it generates nothing, or nothing says it.
    """

    model: str
    model_type: str
    data_type: str
    int8: bool
    tensor_para: int
    pipeline_para: int
    instances: int
    folder: str
    exists: bool
    split: tuple[int, ...]
    request_seconds: int = REQUEST_SECONDS
    data_types: tuple[str, ...] = config_pbtxt.DATA_TYPES
    named: str | None = None
    defects: tuple[str, ...] = ()
    experts: bool = False
    head_size: int | None = None

    @property
    def needed(self) -> Needed:
        """What it needs that an image may be built without."""
        return Needed(self.int8, self.experts, self.head_size)

    @property
    def gpus(self) -> int:
        """GPUs that one instance computes on."""
        return self.tensor_para * self.pipeline_para

    def stages(self, gpus: int) -> int:
        """Return how many stages of its pipeline a process computes that has so many GPUs of one node.

        Ranks count the GPUs of a stage first (FT v5.3 transformer_triton_backend.cpp:49-50).
        """
        return min(self.pipeline_para, max(1, gpus // self.tensor_para))

    def fits(self, gpus: int) -> bool:
        """Return whether the backend starts with that many visible GPUs.

        It uses all of them: the number must be divisible, and there must be instances for all (BE v1.4
        libfastertransformer.cc:383-391).
        """
        return gpus > 0 and gpus % self.gpus == 0 and self.gpus * self.instances >= gpus


@dataclass(frozen=True)
class Needs:
    """The models of a repository, those of them that need GPUs, and the size of all files in bytes."""

    models: tuple[str, ...] = ()
    weights: tuple[Weights, ...] = ()
    size: int = 0

    @property
    def gpus(self) -> int:
        """The fewest GPUs on which every model fits."""
        return max((weights.gpus for weights in self.weights), default=1)

    def stages(self, gpus: int) -> int:
        """Return the maximum number of stages of a model that one process with so many GPUs computes."""
        return max((weights.stages(gpus) for weights in self.weights), default=1)

    @property
    def request_seconds(self) -> int | None:
        """The longest that a request may take; None where a model sets no limit."""
        limits = [weights.request_seconds for weights in self.weights] or [REQUEST_SECONDS]
        return max(limits) if all(limits) else None


def read(folder: Path, families: ModelsConfig | None = None) -> Needs:
    """Return what the repository in `folder` needs; ConfigError when it is not a model repository.

    With `families`, weights are compared with what those read.
    """
    if not folder.is_dir():
        raise ConfigError(
            "the model repository does not exist", where=str(folder), hint="invoke model-repo writes one"
        )
    if (folder / config_pbtxt.CONFIG).exists():
        raise ConfigError(
            "this is a model, not a model repository",
            where=str(folder),
            hint=f"the repository is the folder that holds it: {folder.resolve().parent}",
        )
    files = sorted(folder.glob(f"*/{config_pbtxt.CONFIG}"))
    if not files:
        raise ConfigError(
            f"no model in the repository: no <model>/{config_pbtxt.CONFIG}",
            where=str(folder),
            hint="invoke model-repo writes one",
        )
    if len(files) > MAX_MODELS:
        raise ConfigError(f"{len(files)} models in a repository, more than {MAX_MODELS}", where=str(folder))
    weights = (_weights(folder, file, families) for file in files)
    return Needs(
        tuple(file.parent.name for file in files),
        tuple(split for split in weights if split),
        sum(_sizes(folder)),
    )


def unreadable(folder: Path, uid: int, gid: int) -> Path | None:
    """Return the first file or folder that a user cannot read, or None.

    A container sees a bind mount with the permissions of the host; above the repository it needs none, since
    the engine mounts it as root.
    """
    return next((path for path in (folder, *sorted(folder.rglob("*"))) if not _may(path, uid, gid)), None)


def _sizes(folder: Path) -> Iterator[int]:
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # `unreadable` is about these
            yield path.stat().st_size


def _may(path: Path, uid: int, gid: int) -> bool:
    try:
        status = path.stat()
    except OSError:  # a link without a target, or in a circle
        return False
    shift = 6 if status.st_uid == uid else 3 if status.st_gid == gid else 0
    bits = 0o5 if path.is_dir() else 0o4
    # Root has no more rights there than others: the server has no capabilities.
    return (status.st_mode >> shift) & bits == bits


def _weights(folder: Path, file: Path, families: ModelsConfig | None) -> Weights | None:
    """Return the weights that a model of the FasterTransformer backend needs; None for any other model."""
    config = config_pbtxt.read(file)
    if config.backend != BACKEND:
        return None
    parameters = {name: value.string_value for name, value in config.parameters.items()}
    tensor_para = _number(parameters, "tensor_para_size", file, 1, low=1)
    model = file.parent
    # BERT's ends with a slash (config_pbtxt).
    named = config.default_model_filename.removesuffix("/")
    place = _place(folder, model, parameters, named or f"{tensor_para}-gpu", file)
    # What the backend takes a model for that says nothing (BE v1.1 libfastertransformer.cc:221-222).
    described = families.loading(parameters.get("model_type") or "GPT") if families else None
    int8_mode = _number(parameters, "int8_mode", file, 0)
    needed = _needed(place)
    return Weights(
        model=model.name,
        model_type=parameters.get("model_type", ""),
        data_type=_data_type(parameters),
        data_types=config_pbtxt.data_types(config),
        int8=int8_mode > 0,
        tensor_para=tensor_para,
        pipeline_para=_number(parameters, "pipeline_para_size", file, 1, low=1),
        instances=sum(max(group.count, 1) for group in config.instance_group) or 1,
        folder=str(place.relative_to(folder)),
        exists=place.is_dir(),
        split=tuple(sorted(_split(place.parent))),
        request_seconds=_number(parameters, "max_request_seconds", file, REQUEST_SECONDS, high=MAX_SECONDS),
        named=_named(parameters, named, tensor_para),
        defects=tuple(
            proof.contradictions(
                place,
                described,
                tensor_para,
                int8_mode=int8_mode,
                inside=folder,
                otherwise=parameters,
                data_type=_data_type(parameters),
            )
            if described and place.is_dir()
            else ()
        ),
        experts=needed.experts,
        head_size=needed.head_size,
    )


def _needed(place: Path) -> Needed:
    """Return what the weights need of an image; what is wrong with their config.ini is told elsewhere."""
    try:
        return left_out.of_weights(config_ini.read(place), int8=False)
    except ConfigError:
        return Needed()


def _data_type(parameters: Mapping[str, str]) -> str:
    """Return the data type; release 1.1 has `is_half` instead (BE v1.1 libfastertransformer.cc:254)."""
    return parameters.get("data_type") or ("fp16" if parameters.get("is_half") == "1" else "fp32")


def _number(
    parameters: Mapping[str, str],
    name: str,
    file: Path,
    default: int,
    *,
    low: int = 0,
    high: int = MAX_GPUS,
) -> int:
    text = parameters.get(name) or str(default)
    if _NUMBER.fullmatch(text) and low <= int(text) <= high:
        return int(text)
    raise ConfigError(
        f"{name} is {untrusted.shown(text)}, not a number from {low} to {high}",
        where=str(file),
        hint=MAKE_AGAIN,
    )


def _place(folder: Path, model: Path, parameters: Mapping[str, str], name: str, file: Path) -> Path:
    """Return the path where the backend looks, on this machine: the container sees triton.MODELS."""
    written = parameters.get(_CHECKPOINT)
    if not written:
        versions = [path for path in model.iterdir() if _VERSION.fullmatch(path.name)]
        version = max(versions, key=lambda path: int(path.name), default=model / config_pbtxt.VERSION)
        if not untrusted.is_file_name(name):
            raise _elsewhere(_FILENAME, name, "which is not the name of a folder", file)
        return version / name
    inside = PurePosixPath(written)
    if not inside.is_relative_to(triton.MODELS) or not all(map(untrusted.is_file_name, inside.parts[1:])):
        reason = f"which the container does not have: it sees the repository as {triton.MODELS}"
        raise _elsewhere(_CHECKPOINT, written, reason, file)
    return folder / inside.relative_to(triton.MODELS)


def _named(parameters: Mapping[str, str], name: str, tensor_para: int) -> str | None:
    """Return the parameter of config.pbtxt that says where the weights are, as written; None without one."""
    if written := parameters.get(_CHECKPOINT):
        return f"{_CHECKPOINT} {untrusted.plain(written)}"
    return f"{_FILENAME} {untrusted.plain(name)}" if name not in ("", f"{tensor_para}-gpu") else None


def _elsewhere(parameter: str, written: str, reason: str, file: Path) -> ConfigError:
    what = f"{parameter} is {untrusted.plain(written)}, {reason}"
    return ConfigError(what, where=str(file), hint=config_pbtxt.adopt(file.parent))


def _split(folder: Path) -> Iterator[int]:
    for path in folder.iterdir() if folder.is_dir() else ():
        if (match := _WEIGHTS.fullmatch(path.name)) and path.is_dir():
            yield int(match[1])
