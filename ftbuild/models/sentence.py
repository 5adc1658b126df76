"""How Sentence Transformers makes a vector of a text with a checkpoint: its modules.json, and more files.

Read from a checkpoint, carried into config.ini by a conversion, and followed by the repository. The rules are
those of sentence-transformers v3.3.1 (SentenceTransformer.py, models/Transformer.py, Pooling.py, Dense.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ftbuild.errors import ConfigError
from ftbuild.models import config_ini, untrusted
from ftbuild.models.config_ini import ConvertedModel
from ftbuild.models.weight_files import FETCH_AGAIN

MODULES, PROMPTS, TRANSFORMER = (
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
)
POOLING = "1_Pooling"
_CONFIG = "config.json"
# The section of config.ini that carries what a checkpoint says.
SECTION = "sentence_transformers"
MEAN, FIRST = "mean", "cls"
SERVED = (MEAN, FIRST)
# Keys of a pooling's config.json -> our names. A key that is absent is false, but for the mean (Pooling.py).
_MODES: Mapping[str, str] = {
    "pooling_mode_cls_token": FIRST,
    "pooling_mode_mean_tokens": MEAN,
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_MODE = "pooling_mode"
_ORDER = ("Transformer", "Pooling", "Dense", "Normalize")


@dataclass(frozen=True)
class Sentence:
    """What a checkpoint says about its embeddings.

    `pooling` is the way from states to a vector, by the names above, several joined by `+`; `normalized`
    whether the vector gets the length 1, `longest` the tokens of a text behind which it is cut, and `width`
    the number of values that are pooled; None where no file says it. `obstacles` say what of it is not
    served, `notes` what a client has to do itself.
    """

    pooling: str
    normalized: bool | None = None
    longest: int | None = None
    width: int | None = None
    obstacles: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def values(self) -> dict[str, str]:
        """Return what a conversion carries into config.ini."""
        settings = {
            "pooling": self.pooling,
            "normalized": None if self.normalized is None else str(int(self.normalized)),
            "longest": self.longest,
            "obstacles": "; ".join(self.obstacles),
        }
        return {key: str(value) for key, value in settings.items() if value not in (None, "")}


def read(folder: Path) -> Sentence | None:
    """Return what the checkpoint in `folder` says, None where it says nothing.

    The folder may also be that of the Transformer alone, beside which the modules lie. Raises ConfigError for
    malformed files.
    """
    root, listed = _modules(folder)
    if listed is None:
        file = folder / POOLING / _CONFIG
        return _pooled(folder, file, None) if file.is_file() else None
    kinds = [_kind(module) for module in listed]
    obstacles = list(_of_order(kinds))
    pooled = Sentence("none", normalized=kinds[-1:] == ["Normalize"])
    for kind, module in zip(kinds, listed, strict=True):
        if kind == "Pooling":
            pooled = _pooled(root, _inside(root, module) / _CONFIG, pooled.normalized)
        elif kind == "Transformer":
            obstacles += _of_lower_case(_inside(root, module))
    longest = _longest(_inside(root, listed[0]))
    return replace(
        pooled, longest=longest, obstacles=(*pooled.obstacles, *obstacles), notes=tuple(_of_prompts(root))
    )


def carried(weights: ConvertedModel) -> Sentence | None:
    """Return what the conversion of these weights carried, None where it carried nothing."""
    values = config_ini.all_values(weights.folder / config_ini.FILE)
    settings = {
        key: values.get(f"{SECTION}.{key}") for key in ("pooling", "normalized", "longest", "obstacles")
    }
    if not settings["pooling"]:
        return None
    longest = settings["longest"] or ""
    return Sentence(
        untrusted.plain(settings["pooling"]),
        {"0": False, "1": True}.get(settings["normalized"] or ""),
        int(longest) if longest.isdecimal() and len(longest) < 10 else None,
        obstacles=tuple(untrusted.plain(each) for each in (settings["obstacles"] or "").split("; ") if each),
    )


def _modules(folder: Path) -> tuple[Path, list[Mapping[str, Any]] | None]:
    """Return the folder with the modules, and their list; None where there are none."""
    if (folder / MODULES).is_file():
        return folder, _list(folder)
    parent = folder.resolve().parent
    if (parent / MODULES).is_file():
        listed = _list(parent)
        if any(
            module.get("path") == folder.resolve().name for module in listed if _kind(module) == _ORDER[0]
        ):
            return parent, listed
    return folder, None


def _list(root: Path) -> list[Mapping[str, Any]]:
    file = root / MODULES
    untrusted.require_inside(root, file)
    modules = untrusted.json_list(file, "a list of modules", FETCH_AGAIN)
    if not modules or not all(isinstance(module, dict) for module in modules):
        raise ConfigError("not a list of modules", where=str(file), hint=FETCH_AGAIN)
    return modules


def _kind(module: Mapping[str, Any]) -> str:
    """Return the class of a module; the whole name of one that is not Sentence Transformers' own."""
    named = module.get("type")
    if isinstance(named, str) and named.startswith("sentence_transformers."):
        return named.rpartition(".")[2]
    return str(named)


def _inside(root: Path, module: Mapping[str, Any]) -> Path:
    """Return the folder of a module; ConfigError for one outside of the checkpoint."""
    path = module.get("path") or ""
    if path != "" and not untrusted.is_file_name(path):
        raise ConfigError(
            f"the module {untrusted.shown(path)} is not a folder beside the list",
            where=str(root / MODULES),
            hint=FETCH_AGAIN,
        )
    return root / str(path)


def _object(root: Path, file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    untrusted.require_inside(root, file)
    return untrusted.json_object(file, f"a {file.name}", FETCH_AGAIN)


def _of_order(kinds: list[str]) -> Iterator[str]:
    for kind in dict.fromkeys(kinds):
        if kind not in _ORDER:
            yield f"{MODULES} has a module {untrusted.plain(kind)}"
        elif kind == "Dense":
            yield f"{MODULES} has a dense layer behind the pooling"
    known = [kind for kind in kinds if kind in _ORDER]
    if kinds[0] != _ORDER[0] or known != sorted(known, key=_ORDER.index):
        yield f"{MODULES} has its modules in the order {', '.join(map(untrusted.plain, kinds))}"
    for kind in ("Transformer", "Pooling"):
        if kinds.count(kind) != 1:
            yield f"{MODULES} has {kinds.count(kind)} modules {kind}"


def _pooled(root: Path, file: Path, normalized: bool | None) -> Sentence:
    """Return what the config.json of a pooling says."""
    if not file.is_file():
        raise ConfigError("the pooling has no config.json", where=str(file), hint=FETCH_AGAIN)
    settings = _object(root, file)
    where = f"{file.parent.name}/{_CONFIG}"
    modes = list(_modes(settings))
    unknown = [key for key in settings if key.startswith(f"{_MODE}_") and key not in _MODES and settings[key]]
    pooling = "+".join([*modes, *map(untrusted.plain, unknown)]) or "none"
    obstacles = [] if pooling in SERVED else [f"{where} has the pooling {pooling}"]
    width = settings.get("word_embedding_dimension")
    if width is not None:
        width = untrusted.whole_number(width, "word_embedding_dimension", file, FETCH_AGAIN, low=1)
    if not settings.get("include_prompt", True) and _prompts(root):
        obstacles.append(f"{where} leaves the tokens of prompts out (include_prompt)")
    return Sentence(pooling, normalized, width=width, obstacles=tuple(obstacles))


def _modes(settings: Mapping[str, Any]) -> Iterator[str]:
    if named := settings.get(_MODE):  # later versions have one name, or several, in place of the keys
        for each in named if isinstance(named, list) else [named]:
            yield untrusted.plain(str(each).removesuffix("_tokens"))
        return
    for key, mode in _MODES.items():
        if settings.get(key, mode == MEAN):
            yield mode


def _of_lower_case(folder: Path) -> Iterator[str]:
    if _object(folder, folder / TRANSFORMER).get("do_lower_case"):
        yield f"{TRANSFORMER} has do_lower_case: texts would have to be in small letters before the tokenizer"


def _longest(folder: Path) -> int | None:
    number = _object(folder, folder / TRANSFORMER).get("max_seq_length")
    if number is None:
        return None
    return untrusted.whole_number(number, "max_seq_length", folder / TRANSFORMER, FETCH_AGAIN, low=1)


def _prompts(root: Path) -> dict[str, str]:
    """Return the prompts that may stand in front of a text, by name."""
    prompts = _object(root, root / PROMPTS).get("prompts")
    items = prompts.items() if isinstance(prompts, dict) else ()
    return {name: text for name, text in items if isinstance(text, str) and text}


def _of_prompts(root: Path) -> Iterator[str]:
    """Yield what a client has to do where every text gets a prompt in front of it."""
    default = _prompts(root).get(str(_object(root, root / PROMPTS).get("default_prompt_name")))
    if default:
        yield f"{PROMPTS} puts {untrusted.shown(default)} in front of every text; here clients have to do it"
