"""What is made of a converter's work: its exit code, its output, the weights that it left."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from docker.errors import ImageNotFound

from ftbuild.cli.selection import Selection, plans
from ftbuild.config.schema import Config
from ftbuild.engine import mounted
from ftbuild.errors import ConfigError, ConversionError, HostError
from ftbuild.host import disk
from ftbuild.models import config_ini, conversion, conversion_run, converters
from ftbuild.models.conversion import Conversion, ConversionRequest
from tests.unit.models.test_tensor_names import ONE_LAYER, header

SETTINGS = {
    "model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 64, "n_positions": 4, "vocab_size": 5,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
INI = {
    "num_layer": 1, "head_num": 2, "size_per_head": 32, "inter_size": 256, "max_pos_seq_len": 4,
    "vocab_size": 5, "start_id": 1, "end_id": 2, "weight_data_type": "fp32",
}  # fmt: skip


@dataclass
class Converter:
    """A converter that ends as told, in place of the container that it would run in."""

    planned: Conversion
    code: int = 0
    said: str = "converted\n"
    spoil: Callable[[Path], object] = lambda folder: None
    during: Callable[[Callable[[], None]], object] = lambda tick: tick()
    scripts: list[str] = field(default_factory=list)
    folders: list[mounted.Folders] = field(default_factory=list)

    def run(
        self, client: object, image: str, script: str, folders: mounted.Folders, tick: Callable[[], None]
    ) -> tuple[int, str]:
        self.scripts.append(script)
        self.folders.append(folders)
        out = folders.writable[conversion.OUT]
        (out / conversion_run.LOG).write_text(self.said)
        self.during(tick)
        folder = out / f"{self.planned.request.gpus}-gpu"
        folder.mkdir()
        for name, size in self.planned.files.items():
            (folder / name).write_bytes(bytes(size))
        lines = [f"{key} = {value}" for key, value in INI.items()]
        (folder / "config.ini").write_text("\n".join(["[gpt]", *lines]))
        self.spoil(folder)
        return self.code, "on the container's own streams\n"

    def convert(self, report: Callable[[str], None] = lambda line: None) -> Path:
        client: Any = None
        return conversion_run.convert(client, self.planned, "sha256:1", report)

    @property
    def out(self) -> Path:
        return self.planned.request.out

    @property
    def log(self) -> Path:
        return self.out.with_name("out.log")


@pytest.fixture
def converter(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Converter:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SETTINGS))
    (folder / "model.safetensors").write_bytes(header(ONE_LAYER))
    request = ConversionRequest("gpt", folder, tmp_path / "out")
    made = Converter(conversion.plan_conversion(config, "22.12", request))
    monkeypatch.setattr(mounted, "run", made.run)
    return made


def failure(converter: Converter, kind: type[Exception] = ConversionError) -> Any:
    with pytest.raises(kind) as caught:
        converter.convert()
    assert not converter.out.exists()
    return caught.value


def test_whole_weights_are_kept_with_a_record_and_a_log(converter: Converter) -> None:
    assert converter.convert() == converter.out / "1-gpu"
    assert {path.name for path in converter.out.iterdir()} == {"1-gpu", "conversion.json"}
    assert converter.log.read_text() == "converted\n"
    record = json.loads((converter.out / "conversion.json").read_text())
    planned = converter.planned
    assert record == {
        "family": "gpt",
        "release": "22.12",
        "image": "sha256:1",
        "gpus": 1,
        "data_type": "fp32",
        "facts": planned.checkpoint.facts,
        "commands": planned.commands(),
    }


def test_the_converter_sees_the_checkpoint_and_writes_into_the_output_only(converter: Converter) -> None:
    converter.convert()
    (script,), (folders,) = converter.scripts, converter.folders
    first, *commands = script.splitlines()
    assert first == f"exec > {conversion.OUT}/{conversion_run.LOG} 2>&1"
    assert [line.split()[1] for line in commands] == [argv[1] for argv in converter.planned.commands()]
    assert folders.readable == {conversion.CHECKPOINT: converter.planned.checkpoint.folder}
    assert list(folders.writable) == [conversion.OUT]


def test_what_has_been_written_is_told_while_the_converter_runs(converter: Converter) -> None:
    converter.said = "x" * converter.planned.needed
    heard: list[str] = []
    converter.convert(heard.append)
    assert [line.partition(",")[0] for line in heard] == ["converting gpt: 100 %"]


def test_a_checkpoint_of_another_layout_is_brought_into_it_by_a_script(
    converter: Converter, config: Config
) -> None:
    layout = config.models.families["codegen"].converters[0].layout
    script = config.path("../ftbuild/models/relayout.py")
    converter.planned = replace(converter.planned, relayout=layout, relayout_script=script)

    def leave(folder: Path) -> None:
        (folder.parent / conversion.RELAID).mkdir()

    converter.spoil = leave
    converter.convert()
    (folders,) = converter.folders
    assert folders.readable[f"{converters.SCRIPTS}/relayout.py"] == script
    assert len(converter.scripts[0].splitlines()) == 3
    assert not (converter.out / conversion.RELAID).exists()


@pytest.mark.parametrize("mark", conversion_run.LOST)
def test_a_converter_that_left_something_out_has_failed_whatever_its_code(
    converter: Converter, mark: str
) -> None:
    converter.said = f"fine\nline with {mark} in it\nfine\n"
    found = failure(converter)
    assert found.what == f"the converter left something out:\n    line with {mark} in it"
    assert found.where == str(converter.log)
    assert found.exit_code == 7
    assert converter.log.read_text() == converter.said


def test_the_marks_are_those_of_the_converters_and_of_transformers() -> None:
    assert conversion_run.LOST == (
        "[ERROR]",
        "cannot find key",
        "Fail to save the config",
        "newly initialized",
    )


def test_of_many_lost_things_the_first_are_shown(converter: Converter) -> None:
    converter.said = "".join(f"[ERROR] {number}\n" for number in range(30))
    assert failure(converter).what.splitlines()[1:] == [f"    [ERROR] {n}" for n in range(15)]


def test_a_converter_that_ends_with_an_error_shows_its_last_lines(converter: Converter) -> None:
    converter.code, converter.said = 3, "".join(f"line {number}\n" for number in range(30))
    first, *lines = failure(converter).what.splitlines()
    assert first == "the converter ended with code 3:"
    assert lines == [f"    line {number}" for number in range(15, 30)]


def test_a_killed_converter_wants_more_memory(converter: Converter) -> None:
    converter.code = 137
    killed = failure(converter, HostError)
    assert "memory ran out" in killed.what
    assert killed.where == str(converter.log)
    converter.code = 136
    assert "was ended by signal 8 (Floating point exception)" in failure(converter).what


def test_a_full_disk_is_named(converter: Converter, monkeypatch: pytest.MonkeyPatch) -> None:
    converter.code = 1
    monkeypatch.setattr(disk, "require", lambda *_: None)
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 0)
    full = failure(converter, HostError)
    assert (full.what, full.where) == ("the disk is full", str(converter.out.parent))
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 1)
    assert "ended with code 1" in failure(converter).what


def test_room_is_needed_for_what_is_written(converter: Converter, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Path, int]] = []
    monkeypatch.setattr(disk, "require", lambda folder, size, purpose: asked.append((folder, size)))
    converter.convert()
    assert asked == [(converter.out.parent, converter.planned.needed)]


def without_weights_from(number: int) -> Callable[[Path], None]:
    """Remove all weight files, in the order of their names, but the first ones."""

    def remove(folder: Path) -> None:
        for file in sorted(folder.glob("*.bin"))[number:]:
            file.unlink()

    return remove


def test_incomplete_weights_are_not_kept(converter: Converter) -> None:
    converter.spoil = lambda folder: (folder / "model.wte.bin").unlink()
    found = failure(converter)
    assert found.what.splitlines() == [
        "the converter ended without an error, but its weights are incomplete:",
        "    model.wte.bin is missing",
    ]
    converter.spoil = without_weights_from(0)
    lines = failure(converter).what.splitlines()
    assert len(lines) == 1 + 15 + 1
    assert lines[-1] == f"    and {len(converter.planned.files) - 15} more"
    more = len(converter.planned.files) - 15
    converter.spoil = without_weights_from(more)
    assert len(failure(converter).what.splitlines()) == 1 + 15


def test_weights_in_another_data_type_are_not_kept(converter: Converter) -> None:
    converter.planned = replace(converter.planned, data_type="fp16")
    assert "weight_data_type" in failure(converter).what


def test_the_config_that_a_converter_does_not_write_is_written(converter: Converter) -> None:
    values = {key: str(value) for key, value in INI.items()}
    given = {"gpt": {**values, "model_name": "100%"}}
    made = converter.planned.converter.model_copy(update={"config": given})
    converter.planned = replace(converter.planned, converter=made)
    converter.spoil = lambda folder: (folder / "config.ini").unlink()
    text = (converter.convert() / "config.ini").read_text()
    assert text.startswith("[gpt]\n")
    assert "model_name = 100%\n" in text


def test_what_a_converter_does_not_write_is_added_to_its_config(converter: Converter) -> None:
    given = {"gpt": {"has_positional_encoding": "0", "end_id": "{positions}"}}
    made = converter.planned.converter.model_copy(update={"config": given, "facts": {}})
    converter.planned = replace(converter.planned, converter=made)
    values = config_ini.read(converter.convert()).values
    written = {key: str(value) for key, value in INI.items()}
    assert values == {**written, "has_positional_encoding": "0", "end_id": "4"}


def test_a_broken_config_of_a_converter_is_its_failure(converter: Converter) -> None:
    made = converter.planned.converter.model_copy(update={"config": {"gpt": {"a": "b"}}})
    converter.planned = replace(converter.planned, converter=made)
    converter.spoil = lambda folder: (folder / "config.ini").write_text("[gpt")
    assert failure(converter).what.startswith("config.ini cannot be read: ")


def test_something_else_in_the_place_of_its_config_is_a_converters_failure(converter: Converter) -> None:
    def take_its_place(folder: Path) -> None:
        (folder / "config.ini").unlink()
        (folder / "config.ini").mkdir()

    converter.spoil = take_its_place
    assert failure(converter).what == (
        "the converter wrote a file that ftbuild writes itself:\n    config.ini"
    )


def test_the_positions_of_a_model_without_a_table_are_added_to_its_config(converter: Converter) -> None:
    made = converter.planned.converter.model_copy(update={"config": {}, "facts": {}})
    converter.planned = replace(converter.planned, converter=made)
    converter.spoil = lambda folder: (folder / "config.ini").write_text(
        "[gpt]\nhas_positional_encoding = 0\nweight_data_type = fp32\n"
    )
    assert config_ini.read(converter.convert()).values == {
        "has_positional_encoding": "0", "weight_data_type": "fp32", "max_position_embeddings": "4",
    }  # fmt: skip


def test_a_converter_without_a_folder_of_weights_has_failed(converter: Converter) -> None:
    converter.spoil = lambda folder: folder.rename(folder.with_name("2-gpu"))
    assert "config.ini was not written" in failure(converter).what


def test_a_converter_that_writes_nothing_any_more_is_given_up(
    converter: Converter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion_run, "STALL_SECONDS", -1)
    found = failure(converter)
    assert found.what.startswith("the converter has written nothing for ")
    assert found.where == str(converter.log)
    assert converter.log.read_text() == converter.said
    monkeypatch.setattr(conversion_run, "STALL_SECONDS", 60)
    assert converter.convert()


def test_an_hour_without_a_byte_is_the_limit() -> None:
    assert conversion_run.STALL_SECONDS == 3600
    assert "for 60 minutes" in conversion_run._stalled(Path("x.log")).what


def test_an_earlier_log_is_replaced(converter: Converter) -> None:
    converter.log.write_text("[ERROR] of an earlier run\n")
    converter.convert()
    assert converter.log.read_text() == "converted\n"

    def lose(folder: Path) -> None:
        (folder.parent / conversion_run.LOG).unlink()

    converter.planned = replace(
        converter.planned, request=replace(converter.planned.request, out=converter.out.with_name("other"))
    )
    converter.out.with_name("other.log").write_text("[ERROR] of an earlier run\n")
    converter.spoil = lose
    assert converter.convert()
    assert not converter.out.with_name("other.log").exists()


def test_of_a_long_log_the_end_is_read(converter: Converter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion_run, "LOG_BYTES", 100)
    converter.said = "[ERROR] at the start\n" + "x" * 100 + "\n"
    assert converter.convert()
    converter.planned = replace(
        converter.planned, request=replace(converter.planned.request, out=converter.out.with_name("other"))
    )
    converter.said = "x" * 100 + "\n[ERROR] at the end\n"
    monkeypatch.setattr(conversion_run, "LOG_BYTES", len("[ERROR] at the end\n"))
    assert failure(converter).what == "the converter left something out:\n    [ERROR] at the end"


def test_a_log_is_shown_whatever_bytes_are_in_it(converter: Converter) -> None:
    def write(folder: Path) -> None:
        (folder.parent / conversion_run.LOG).write_bytes(b"[ERROR] caf\xe9 is not there\n")

    converter.spoil = write
    what = failure(converter).what
    assert what == "the converter left something out:\n    [ERROR] caf\ufffd is not there"


def test_a_converter_without_a_log_is_shown_by_what_its_container_said(converter: Converter) -> None:
    converter.code = 3
    converter.spoil = lambda folder: (folder.parent / conversion_run.LOG).unlink()
    what = failure(converter).what
    assert what == "the converter ended with code 3:\n    on the container's own streams"


# The image


def engine(**labels: str) -> Any:
    """An engine with an image for each name, of the release given."""

    def get(name: str) -> Any:
        if name not in labels:
            raise ImageNotFound(name)
        release = {"io.ftbuild.triton": labels[name]} if labels[name] else {}
        return SimpleNamespace(id=f"id of {name}", labels=release)

    return SimpleNamespace(images=SimpleNamespace(get=get))


def test_the_first_sdk_image_that_is_built_here_is_taken(config: Config) -> None:
    found = plans(config, Selection(config.folder, ["22.12"], ["80", "86", "90"]))
    tags = [plan.tag("sdk") for plan in found]
    built = engine(**dict.fromkeys(tags[1:], "22.12"))
    assert conversion.sdk_image(built, found) == f"id of {tags[1]}"
    assert conversion.sdk_image(engine(mine=""), found, "mine") == "id of mine"
    assert conversion.sdk_image(engine(mine="22.12"), found, "mine") == "id of mine"


def test_an_sdk_image_of_another_release_or_none_is_refused(config: Config) -> None:
    found = plans(config, Selection(config.folder, ["22.12"], ["80", "86"]))
    with pytest.raises(ConfigError, match=r"the image is of release 22\.03, not 22\.12") as other:
        conversion.sdk_image(engine(mine="22.03"), found, "mine")
    assert (other.value.where, other.value.hint) == ("mine", "--triton 22.03")
    names = " or ".join(plan.tag("sdk") for plan in found)
    with pytest.raises(HostError, match="there is no SDK image") as absent:
        conversion.sdk_image(engine(), found)
    assert absent.value.what == f"there is no SDK image {names}"
    with pytest.raises(HostError, match="there is no SDK image mine"):
        conversion.sdk_image(engine(), found, "mine")


@pytest.mark.parametrize(
    ("section", "settings", "wanted"),
    [
        ("gptneox", {"max_position_embeddings": 2048}, "2048"),
        ("gptj", {"n_positions": 2048}, "2048"),
        ("gpt", {"max_position_embeddings": 4096, "n_positions": 7}, "4096"),
        ("gptneox", {"max_position_embeddings": "2048"}, None),
        ("gptneox", {"max_position_embeddings": 0}, None),
        ("gptj", {"max_position_embeddings": 0, "n_positions": 2048}, "2048"),
        ("gptj", {"n_positions": 1}, "1"),
        ("gptneox", {"max_position_embeddings": True}, None),
        ("gptneox", {}, None),
        # T5's positions are relative, BERT's are in config.ini.
        ("decoder", {"n_positions": 512}, None),
        ("bert", {"max_position_embeddings": 512}, None),
    ],
)
def test_the_context_of_rotary_models_is_what_the_checkpoint_says(
    section: str, settings: dict[str, object], wanted: str | None, tmp_path: Path
) -> None:
    folder = tmp_path / "1-gpu"
    folder.mkdir()
    (folder / "config.ini").write_text(f"[{section}]\nvocab_size = 50\n")
    added = config_ini.added_context(folder, settings)
    assert added == ({section: {"max_position_embeddings": wanted}} if wanted else {})
    if added:
        config_ini.add(folder, added)
        assert config_ini.context(config_ini.read(folder)) == int(wanted or 0)
        assert config_ini.added_context(folder, settings) == {}


def test_a_table_of_positions_is_the_context(tmp_path: Path) -> None:
    folder = tmp_path / "1-gpu"
    folder.mkdir()
    (folder / "config.ini").write_text("[gpt]\nmax_pos_seq_len = 1024\n")
    assert config_ini.added_context(folder, {"n_positions": 2048}) == {}
    assert config_ini.context(config_ini.read(folder)) == 1024


def with_value(name: str, value: float, kind: type[np.floating[Any]] = np.float32) -> Callable[[Path], None]:
    """Put a value into the middle of a file."""

    def put(folder: Path) -> None:
        numbers = np.fromfile(folder / name, kind)
        with np.errstate(over="ignore"):
            numbers[len(numbers) // 2] = value
        numbers.tofile(folder / name)
        ini = folder / "config.ini"
        ini.write_text(ini.read_text().replace("fp32", {4: "fp32", 2: "fp16"}[numbers.itemsize]))

    return put


def converted_as(converter: Converter, config: Config, data_type: str) -> None:
    request = replace(converter.planned.request, data_type=data_type)
    converter.planned = conversion.plan_conversion(config, "22.12", request)


@pytest.mark.parametrize("name", ["model.wte.bin", "model.layers.0.attention.query_key_value.weight.0.bin"])
@pytest.mark.parametrize("value", [7e4, -7e4, 65520.0, np.inf, -np.inf, np.nan])
def test_what_became_infinite_in_fp16_is_not_kept(
    converter: Converter, config: Config, value: float, name: str
) -> None:
    converted_as(converter, config, "fp16")
    converter.spoil = with_value(name, value, np.float16)
    found = failure(converter)
    assert name in found.what
    assert "--dtype fp32" in (found.hint or "")


@pytest.mark.parametrize("value", [65519.0, -65504.0, 1e-9])
def test_what_fp16_can_hold_is_kept(converter: Converter, config: Config, value: float) -> None:
    converted_as(converter, config, "fp16")
    converter.spoil = with_value("model.wte.bin", value, np.float16)
    assert converter.convert()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_no_number_in_fp32_is_not_kept(converter: Converter, value: float) -> None:
    converter.spoil = with_value("model.wpe.bin", value)
    assert "infinities or NaN" in failure(converter).what


@pytest.mark.parametrize(("value", "beyond"), [(65519.9, False), (65520.0, True), (-1e38, True)])
def test_what_a_server_would_make_infinite_in_fp16_is_told_and_recorded(
    converter: Converter, value: float, beyond: bool
) -> None:
    converter.spoil = with_value("model.wpe.bin", value)
    heard: list[str] = []
    folder = converter.convert(heard.append)
    warned = [line for line in heard if "infinite in fp16" in line]
    assert [line.endswith("model.wpe.bin") for line in warned] == [True] * beyond
    record = json.loads((folder.parent / "conversion.json").read_text())
    assert record.get("beyond_fp16") == (["model.wpe.bin"] if beyond else None)
