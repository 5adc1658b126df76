"""Checkpoints, tokenizers and what a converter left are not trusted: the odd is refused, without effect."""

from __future__ import annotations

import io
import json
import os
import pickle
import stat
import subprocess
import tarfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ftbuild.config.schema import Config
from ftbuild.engine import container, mounted
from ftbuild.errors import ConfigError, ConversionError, FtbuildError, HostError
from ftbuild.models import (
    config_ini,
    conversion,
    conversion_run,
    progress,
    repository,
    tokenizer,
    untrusted,
)
from ftbuild.models.conversion import Conversion, ConversionRequest
from ftbuild.models.repository import RepositoryOptions
from ftbuild.text import terminal
from testing import bytelevel, needs
from tests.unit.models import test_tensor_names as tensor_names
from tests.unit.models.test_repository import GPT2, GPTJ, OLD, TEMPLATES, converted

SETTINGS = {
    "model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 64, "n_positions": 4, "vocab_size": 5,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
HEADER = {"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
INDEX = "model.safetensors.index.json"


def safetensors(header: Any = HEADER, size: int = 4) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(size)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SETTINGS))
    (folder / "model.safetensors").write_bytes(tensor_names.header(tensor_names.ONE_LAYER))
    return folder


# CPU time, of which most refusals take a hundredth.
REFUSED_SECONDS = 10


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the user's that nothing may read or write."""
    file = tmp_path / "id_rsa"
    file.write_text("PRIVATE")
    return file


def plan(config: Config, folder: Path, **options: Any) -> Conversion:
    request = ConversionRequest("gpt", folder, folder.parent / "out", **options)
    return conversion.plan_conversion(config, "22.12", request)


def refused(config: Config, folder: Path, **options: Any) -> FtbuildError:
    """Return why a conversion is refused: in few words, and before anybody waits long for them."""
    begun = time.process_time()
    with pytest.raises(FtbuildError) as caught:
        plan(config, folder, **options)
    assert len(str(caught.value)) < 2000
    assert time.process_time() - begun < REFUSED_SECONDS
    return caught.value


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"n_layer": 0}, "layers is 0, not a whole number from 1"),
        ({"n_layer": -3}, "n_layer is -3, not a whole number"),
        ({"n_layer": 1.9}, "n_layer is 1.9, not a whole number"),
        ({"n_layer": "12"}, "n_layer is '12', not a whole number"),
        ({"n_layer": 10**20}, "n_layer is 100000000000000000000, not a whole number"),
        ({"n_layer": 3_000_000}, "weight files, more than the 250000 of any model"),
        ({"n_head": 0}, "heads is 0"),
        ({"n_head": 5, "n_embd": 32}, "hidden is 32, which 5 heads cannot share evenly"),
        ({"n_embd": -32}, "n_embd is -32"),
        (
            {"eos_token_id": [1, 2]},
            "eos_token_id names 2 tokens that end an answer, [1, 2]; FasterTransformer knows one",
        ),
        ({"model_type": ["gpt2"]}, "not a config.json with a model_type: it is ['gpt2']"),
        ({"model_type": "\x1b[2J" + "x" * 10**6}, r"the checkpoint is a '\x1b[2Jxxx"),
        ({"activation_function": "x" * 10**6}, "activation_function is 'xxx"),
    ],
)
def test_dimensions_that_no_model_has_are_refused(
    settings: dict[str, Any], what: str, config: Config, checkpoint: Path
) -> None:
    (checkpoint / "config.json").write_text(json.dumps({**SETTINGS, **settings}))
    assert what in str(refused(config, checkpoint))


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("config.json", b'{"model_type": "gpt2", "eos_token_id": NaN}', "NaN is not a JSON number"),
        ("config.json", b'{"model_type": "gpt2", "n_embd": Infinity}', "Infinity is not a JSON number"),
        ("config.json", b'{"model_type": ' + b"[" * 100_000, "nested too deeply"),
        ("config.json", b'{"model_type": "caf\xe9"}', "can't decode byte 0xe9"),
        ("config.json", b'{"n_layer": ' + b"9" * 5000 + b"}", "Exceeds the limit"),
        ("config.json", b"[" + b"{}," * 6_000_000 + b"{}]", "has more than 16.7772 MB"),
        ("model.safetensors", safetensors({"w": {"data_offsets": ["0", "4"]}}), "no data_offsets for 'w'"),
        ("model.safetensors", safetensors({"w": {"data_offsets": [4, 0]}}), "no data_offsets for 'w'"),
        ("model.safetensors", safetensors({"w": {"data_offsets": [0, None]}}), "no data_offsets for 'w'"),
        ("model.safetensors", safetensors({"w": []}), "no data_offsets for 'w'"),
        ("model.safetensors", safetensors(b"[" * 100_000), "nested too deeply"),
        ("model.safetensors", (2**63).to_bytes(8, "little") + b"{}", "its header has 9223372036854775808"),
        (INDEX, b'{"weight_map": {"a": 5}}', "5 is not the name of a file beside it"),
        (INDEX, b'{"weight_map": {"a": null}}', "None is not the name of a file beside it"),
        (INDEX, b'{"weight_map": {"a": "/etc/passwd"}}', "'/etc/passwd' is not the name of a file beside it"),
        (INDEX, b'{"weight_map": {"a": "../x"}}', "'../x' is not the name of a file beside it"),
        (INDEX, b'{"weight_map": {"a": ".."}}', "'..' is not the name of a file beside it"),
        (INDEX, b'{"weight_map": {"a": ""}}', "'' is not the name of a file beside it"),
        (INDEX, b'{"weight_map": {"a": "x\\u0000"}}', r"'x\x00' is not the name of a file beside it"),
        (INDEX, b'{"weight_map": {}}', "it names 0 files"),
        (INDEX, b'{"weight_map": []}', "it has no weight_map"),
    ],
)
def test_a_malformed_file_is_refused_by_its_name(
    name: str, content: bytes, what: str, config: Config, checkpoint: Path
) -> None:
    if name == INDEX:
        (checkpoint / "model.safetensors").unlink()
    (checkpoint / name).write_bytes(content)
    error = refused(config, checkpoint)
    assert what in error.what
    assert (error.where or "").endswith(name)


def test_a_named_pipe_is_not_waited_for(config: Config, checkpoint: Path) -> None:
    (checkpoint / "config.json").unlink()
    os.mkfifo(checkpoint / "config.json")
    assert "no checkpoint here" in refused(config, checkpoint).what


def tar_of_torch(name: str = "storages") -> bytes:
    """The form of torch 0.1, whose pickles torch before 2.6 loads whatever `weights_only` says."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for member in (name, "tensors", "pickle"):
            archive.addfile(tarfile.TarInfo(member), io.BytesIO())
    return content.getvalue()


def torchscript() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("model/data.pkl", b"")
        archive.writestr("model/constants.pkl", b"")
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (tar_of_torch(), "truncated or damaged: it is not a file that PyTorch writes"),
        (tar_of_torch("\udc80\x02"), "can run code: it is a tar archive"),
        (torchscript(), "can run code: it is a TorchScript program"),
        (pickle.dumps({}, protocol=0), "truncated or damaged: it is not a file that PyTorch writes"),
    ],
)
def test_pickles_that_torch_would_run_code_of_are_refused(
    content: bytes, what: str, config: Config, checkpoint: Path
) -> None:
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / "pytorch_model.bin").write_bytes(content)
    error = refused(config, checkpoint)
    assert what in error.what
    assert (error.where or "").endswith("pytorch_model.bin")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "README.md", "nested/notes"])
def test_a_link_that_leads_out_of_the_checkpoint_is_refused(
    name: str, config: Config, checkpoint: Path, secret: Path
) -> None:
    file = checkpoint / name
    file.parent.mkdir(exist_ok=True)
    content = file.read_bytes() if file.exists() else b""
    file.unlink(missing_ok=True)
    secret.write_bytes(content)
    file.symlink_to(secret)
    error = refused(config, checkpoint)
    assert "is a link that leads out of the folder" in error.what
    assert error.where == str(file)


def test_links_of_hugging_faces_cache_are_followed(config: Config, checkpoint: Path, tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "models--x" / "snapshots" / "c0ffee", tmp_path / "models--x" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(sorted(checkpoint.iterdir())):
        file.rename(blobs / str(number))
        (snapshot / file.name).symlink_to(Path("..", "..", "blobs", str(number)))
    assert plan(config, snapshot).checkpoint.files == (snapshot / "model.safetensors",)
    # Not where `blobs` itself is a link: whoever wrote the checkpoint may have made it.
    blobs.rename(tmp_path / "elsewhere")
    blobs.symlink_to(tmp_path / "elsewhere")
    assert "leads out of the folder" in refused(config, snapshot).what


Attack = Callable[[Path, Path], object]


def replaced(file: Path, target: Path) -> None:
    file.unlink()
    file.symlink_to(target)


ATTACKS: dict[str, tuple[Attack, str]] = {
    "the record is a link": (lambda out, secret: (out / "conversion.json").symlink_to(secret), "a link"),
    "the log is a link": (lambda out, secret: replaced(out / "convert.log", secret), "a link"),
    "a weight is a link": (lambda out, secret: replaced(out / "1-gpu/model.wte.bin", secret), "a link"),
    "config.ini is a link": (lambda out, secret: replaced(out / "1-gpu/config.ini", secret), "a link"),
    "another link": (lambda out, secret: (out / "1-gpu/notes").symlink_to(secret), "a link"),
    "a linked folder": (lambda out, secret: (out / "1-gpu/x").symlink_to(secret.parent), "a link"),
    "a named pipe": (lambda out, secret: os.mkfifo(out / "1-gpu/pipe"), "a named pipe"),
    "a record": (
        lambda out, secret: (out / "conversion.json").write_text("{}"),
        "a file that ftbuild writes itself",
    ),
    "a broken config.ini": (
        lambda out, secret: (out / "1-gpu/config.ini").write_text("x = 1"),
        "config.ini cannot be read",
    ),
}


@pytest.fixture
def converting(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What code of a checkpoint would do in the converter's container, in place of the container."""

    def take(planned: Conversion, secret: Path, attack: Attack) -> None:
        def run(client: object, image: str, script: str, folders: mounted.Folders, tick: Any) -> Any:
            out = folders.writable[conversion.OUT]
            folder = out / "1-gpu"
            folder.mkdir()
            for name, size in planned.files.items():
                (folder / name).write_bytes(bytes(size))
            values = {
                "num_layer": 1, "head_num": 2, "size_per_head": 32, "inter_size": 256, "max_pos_seq_len": 4,
                "vocab_size": 5, "start_id": 1, "end_id": 2, "weight_data_type": "fp32",
            }  # fmt: skip
            lines = [f"{key} = {value}" for key, value in values.items()]
            (folder / "config.ini").write_text("\n".join(["[gpt]", *lines]))
            (out / "convert.log").write_text("converted\n")
            attack(out, secret)
            return 0, ""

        monkeypatch.setattr(mounted, "run", run)

    return take


def convert(planned: Conversion) -> Path:
    return conversion_run.convert(None, planned, "image", lambda line: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ATTACKS)
def test_what_a_converter_leaves_can_neither_read_nor_write_elsewhere(
    name: str, converting: Callable[..., None], config: Config, checkpoint: Path, secret: Path
) -> None:
    attack, what = ATTACKS[name]
    planned = plan(config, checkpoint)
    converting(planned, secret, attack)
    with pytest.raises(ConversionError) as caught:
        convert(planned)
    assert what in caught.value.what
    assert secret.read_text() == "PRIVATE"
    assert "PRIVATE" not in str(caught.value)
    assert {path.name for path in secret.parent.iterdir()} - {"out.log"} == {"checkpoint", "id_rsa"}
    log = secret.parent / "out.log"
    assert not log.exists() or log.read_text() == "converted\n"


def test_setuid_and_setgid_bits_of_a_converter_are_cleared(
    converting: Callable[..., None], config: Config, checkpoint: Path, secret: Path
) -> None:
    planned = plan(config, checkpoint)
    converting(planned, secret, lambda out, _: (out / "1-gpu/model.wte.bin").chmod(0o6755))
    mode = (convert(planned) / "model.wte.bin").stat().st_mode
    assert stat.S_IMODE(mode) == 0o755


def test_a_record_never_replaces_what_is_there(tmp_path: Path, secret: Path) -> None:
    from ftbuild.host import files

    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for name in ("link", "id_rsa"):
        with pytest.raises(FileExistsError):
            files.write_new(tmp_path / name, "x")
    assert not (tmp_path / "nothing").exists()
    files.write_new(tmp_path / "new", "é")
    assert (tmp_path / "new").read_text(encoding="utf-8") == "é"


@pytest.fixture
def options(tmp_path: Path) -> RepositoryOptions:
    return RepositoryOptions(
        family="gptj",
        weights=converted(tmp_path / "weights", "gptj", GPTJ),
        out=tmp_path / "models",
        tokenizer=bytelevel.write(tmp_path / "tokenizer"),
    )


def test_no_link_among_weights_gets_into_a_repository(options: RepositoryOptions, secret: Path) -> None:
    (options.weights / "notes").symlink_to(secret)
    with pytest.raises(ConfigError, match="'notes' is neither a file nor a folder, but a link"):
        repository.make(TEMPLATES, options)
    assert not options.out.exists()


@pytest.mark.parametrize("name", ["merges.txt", "vocab.json", "added_tokens.json"])
def test_no_link_of_a_tokenizer_gets_into_a_repository(
    name: str, options: RepositoryOptions, secret: Path
) -> None:
    folder = options.tokenizer
    assert folder
    (folder / "tokenizer.json").unlink()
    for other, content in {"vocab.json": '{"a": 1}', "merges.txt": "a b", "added_tokens.json": "{}"}.items():
        (folder / other).write_text(content)
    (folder / name).unlink()
    (folder / name).symlink_to(secret)
    with pytest.raises(ConfigError, match=f"'{name}' is a link that leads out of the folder"):
        repository.make(TEMPLATES, options)
    assert not options.out.exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", '{"model": {"vocab": null}}'),
        ("tokenizer.json", '{"model": {"vocab": {"a": 1, "b": "2"}}}'),
        ("tokenizer.json", '{"model": {"vocab": {"a": 1.5}}}'),
        ("tokenizer.json", '{"model": {"vocab": {"a": true}}}'),
        ("tokenizer.json", '{"model": {"vocab": {}}, "added_tokens": [{"id": "x"}]}'),
        ("tokenizer.json", '{"model": {"vocab": {}}, "added_tokens": [5, null]}'),
        ("tokenizer.json", '{"model": {"vocab": {}}, "added_tokens": {"a": 1}}'),
        ("tokenizer.json", '{"model": []}'),
        (
            "tokenizer.json",
            json.dumps({"model": {"vocab": {}}, "added_tokens": [{"content": "{" * 40_000, "id": 1}]}),
        ),
        ("added_tokens.json", json.dumps({"{" * 40_000: 1})),
        ("tokenizer.json", "[]"),
        ("tokenizer.json", "{" * 100_000),
        ("vocab.json", '{"a": "b"}'),
        ("vocab.json", '{"a": NaN}'),
        ("vocab.json", "null"),
    ],
)
def test_a_malformed_tokenizer_is_refused_by_its_name(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    (tmp_path / "merges.txt").write_text("a b")
    if name == "added_tokens.json":
        (tmp_path / "vocab.json").write_text("{}")
    with pytest.raises(ConfigError) as caught:
        tokenizer.read(tmp_path)
    assert caught.value.where == str(tmp_path / name)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"num_layer": "12 # c"}, "num_layer is '12 # c', not a whole number"),
        ({"num_layer": "12 ; c"}, "num_layer is '12 ; c', not a whole number"),
        ({"head_num": "abc"}, "head_num is 'abc'"),
        ({"head_num": "0"}, "head_num is '0'"),
        ({"head_num": "-1"}, "head_num is '-1'"),
        ({"vocab_size": "nan"}, "vocab_size is 'nan'"),
        ({"vocab_size": "9" * 5000}, "vocab_size is '999"),
        ({"vocab_size": "\uff15"}, "vocab_size is '\uff15'"),
        ({"tensor_para_size": "1.5"}, "has 1 GPUs, its config.ini 1.5"),
    ],
)
def test_what_config_ini_says_is_a_number_or_refused(
    values: dict[str, str], what: str, options: RepositoryOptions, tmp_path: Path
) -> None:
    weights = converted(tmp_path / "changed", "gptj", {**GPTJ, **values})
    # Of release 1.1, whose config.pbtxt gets these numbers.
    templates = {"fastertransformer": OLD.replace("GPT", "GPT-J")}
    with pytest.raises(ConfigError) as caught:
        repository.make(templates, replace(options, weights=weights, tokenizer=None))
    assert what in caught.value.what
    assert (caught.value.where or "").startswith(str(weights))


@pytest.mark.parametrize("values", [{"n_head": 0}, {"n_embd": "abc"}, {"n_embd": 3, "n_head": 4}])
def test_numbers_that_follow_from_others_are_checked_as_well(values: dict[str, Any], tmp_path: Path) -> None:
    weights = config_ini.read(converted(tmp_path, "gpt", {**GPT2, **values}))
    with pytest.raises(ConfigError):
        weights.parameters(["size_per_head"])


@pytest.mark.parametrize("pipeline", [0, -1, 1025, 10**9])
def test_pipeline_stages_are_a_number_that_there_can_be(pipeline: int, options: RepositoryOptions) -> None:
    with pytest.raises(ConfigError, match="is not a number of pipeline stages") as refused:
        repository.make(TEMPLATES, replace(options, pipeline=pipeline))
    assert refused.value.hint == "1 to 1024"


@pytest.mark.parametrize(
    "content",
    [
        b"[gpt\n",
        b"[gpt]\nkey\n  continued\n",
        b"\xff[gpt]\n",
        b"[gpt]\nx\x00 = 1\n",
        b"x = 1\n",
        b"[a]\n" * 10**6,
    ],
)
def test_a_malformed_config_ini_is_refused_by_its_name(content: bytes, tmp_path: Path) -> None:
    weights = converted(tmp_path, "gpt", GPT2)
    (weights / "config.ini").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        config_ini.read(weights)
    assert str(weights / "config.ini") in (caught.value.where or "")


def test_values_in_messages_are_short_and_harm_no_terminal() -> None:
    assert untrusted.shown("\x1b[2J") == r"'\x1b[2J'"
    assert len(untrusted.shown({"x": ["y" * 1000] * 1000})) < 1000
    assert untrusted.plain("gpt2") == "gpt2"
    assert untrusted.plain("\x1b[2J") == r"'\x1b[2J'"
    longest = "x" * terminal.LONGEST
    assert untrusted.plain(longest) == longest
    assert len(untrusted.plain(f"{longest}x")) <= terminal.LONGEST
    assert untrusted.sentence("x" * 301) == "x" * 300
    assert untrusted.sentence("a\nb") == "a"
    assert "\x1b" not in untrusted.sentence("\x1b[2J")


def test_a_name_is_one_part_of_a_path_that_a_file_system_takes() -> None:
    names = ("a.bin", "x" * 255, "é" * 127, "x" * 256, "é" * 128, "a/b", "..", ".", "", "a\x00", 5, None)
    assert [name for name in names if untrusted.is_file_name(name) is True] == list(names[:3])
    assert {untrusted.is_file_name(name) for name in names[3:]} == {False}


def test_a_list_that_is_longer_than_any_is_not_parsed(tmp_path: Path) -> None:
    file = tmp_path / "modules.json"
    file.write_text("[]")
    assert untrusted.json_list(file, "a list", "fetch it again") == []
    with file.open("ab") as stream:
        stream.truncate(untrusted.JSON_BYTES + 1)
    with pytest.raises(ConfigError, match=r"it has more than 16\.7772 MB"):
        untrusted.json_list(file, "a list", "fetch it again")


def test_a_file_that_is_inside_is_named_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    assert untrusted.require_inside(tmp_path, tmp_path / "link") == (tmp_path / "file").resolve()


def test_a_folder_that_cannot_be_listed_is_an_error_of_the_host(tmp_path: Path) -> None:
    with pytest.raises(HostError) as unreadable:
        list(untrusted.walk(tmp_path / "none"))
    assert unreadable.value.what == "the folder cannot be read: No such file or directory"
    assert unreadable.value.where == str(tmp_path / "none")


@pytest.mark.parametrize(
    ("kind", "called"), [(stat.S_IFSOCK, "a socket"), (stat.S_IFIFO, "a named pipe")], ids=["socket", "pipe"]
)
def test_what_is_no_file_is_called_what_it_is(kind: int, called: str, tmp_path: Path) -> None:
    os.mknod(tmp_path / "odd", kind | 0o600)
    with pytest.raises(ConfigError) as refused:
        untrusted.require_plain(tmp_path, "take it away")
    assert refused.value.what == f"'odd' is neither a file nor a folder, but {called}"


class Engine:
    """Remembers how a container is asked for."""

    def __init__(self) -> None:
        self.containers = self
        self.api = self
        self.asked: dict[str, Any] = {}

    def info(self) -> dict[str, int]:
        return {"MemTotal": 8 * 2**30}

    def create(self, image: str, **options: Any) -> None:
        self.asked = options

    def remove_container(self, name: str, **options: Any) -> None:
        pass


def test_a_container_of_ours_has_no_network_no_rights_and_limits() -> None:
    engine = Engine()
    with container.created(engine, "image", "true", role="convert", user="1:1"):  # type: ignore[arg-type]
        pass
    asked = engine.asked
    assert asked["network_mode"] == "none"
    assert (asked["cap_drop"], asked["cap_add"]) == (["ALL"], [])
    assert asked["security_opt"] == ["no-new-privileges"]
    assert asked["pids_limit"] == container.MAX_PROCESSES
    assert asked["mem_limit"] == 7 * 2**30


def test_a_pipe_among_a_tokenizers_files_is_not_waited_for(tmp_path: Path) -> None:
    needs.package("tokenizers")
    bleu = needs.package("ftbuild.client.bleu")
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1, "ab": 2}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    for name in ("tokenizer.json", "added_tokens.json"):
        os.mkfifo(tmp_path / name)
    assert bleu.tokenizer(tmp_path).encode("ab").ids == [2]
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b c\n")
    with pytest.raises(ConfigError, match="not a tokenizer"):
        bleu.tokenizer(tmp_path)


def test_a_link_in_a_circle_is_refused(config: Config, checkpoint: Path) -> None:
    (checkpoint / "notes").symlink_to("notes")
    assert "is a dangling link" in refused(config, checkpoint).what


def nested(folder: Path, depth: int) -> None:
    """Make folders in each other, one by one: the path of all may be longer than a path can be."""
    place = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=place)
        inner = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)


def test_folders_in_folders_without_end_are_no_model(tmp_path: Path) -> None:
    nested(tmp_path, 1200)
    try:
        for look in (untrusted.require_links_inside, lambda folder: untrusted.require_plain(folder, "x")):
            with pytest.raises(ConfigError, match="are not a model"):
                look(tmp_path)
        assert progress.size(tmp_path) == 0
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


def test_folders_are_fifty_deep_at_most(tmp_path: Path) -> None:
    nested(tmp_path, 50)
    assert len(list(untrusted.walk(tmp_path))) == 50
    (tmp_path / "/".join("d" * 50) / "d").mkdir()
    with pytest.raises(ConfigError) as refused:
        list(untrusted.walk(tmp_path))
    assert refused.value.what == "more than 100000 files, or 50 nested folders, are not a model"


def test_more_files_than_a_model_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted, "MAX_FILES", 3)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "file").touch()
    untrusted.require_links_inside(tmp_path)
    assert sorted(path.name for path in untrusted.walk(tmp_path)) == ["a", "b", "file"]
    (tmp_path / "a" / "b" / "c").touch()
    with pytest.raises(ConfigError, match="more than 3 files"):
        untrusted.require_links_inside(tmp_path)
