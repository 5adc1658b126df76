"""The inference benchmark without a GPU: its files, turns and figures."""

import hashlib
import json
import math
import re
import signal
import sys
from collections.abc import Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness import catalogue
from benchmarks.harness.figure import Figure, Machine, Result
from benchmarks.harness.origin import Measured
from benchmarks.topics import inference
from benchmarks.topics.inference import __main__ as command_line
from benchmarks.topics.inference import job, measure, report, server
from benchmarks.topics.inference import options as server_options
from benchmarks.topics.inference.measure import FT, Compared, Session, Workload
from benchmarks.topics.inference.models import gpt, gptj, gptneox, llama, t5, weights
from benchmarks.topics.inference.models.architecture import Architecture
from benchmarks.topics.inference.models.gpt import Shape
from benchmarks.topics.inference.report import Data
from benchmarks.topics.inference.server import Command, Image, Place, Variant
from ftbuild.config import loader
from ftbuild.errors import ConfigError, Interrupted, SmokeError
from ftbuild.models import config_pbtxt
from ftbuild.models import weights as converted
from ftbuild.models.converters import find_converter
from testing import ROOT

TINY = Shape(layers=2, hidden=64, heads=2, positions=16, vocabulary=96)
Tiny = gpt.Shape | gptj.Shape | gptneox.Shape | t5.Shape
TINIES: tuple[Tiny, ...] = (
    TINY,
    gptj.Shape(layers=2, hidden=64, heads=2, rotary=16, vocabulary=96),
    gptneox.Shape(layers=2, hidden=64, heads=2, vocabulary=96),
    t5.Shape(layers=2, hidden=64, heads=2, head_size=16, inner=96, vocabulary=96),
)
DECODER = {"layers": 2, "heads": 2, "hidden": 64, "inner": 256, "vocabulary": 96, "start": 95, "end": 95}
FACTS = {
    "gpt": {**DECODER, "positions": 16},
    "gptj": {**DECODER, "rotary": 16},
    "gptneox": {**DECODER, "parallel": 1},
    "t5": {
        **{**DECODER, "inner": 96, "start": 0},
        **{"decoder_layers": 2, "head_size": 16, "buckets": 32, "gated": 0, "scaled": 1},
    },
}
GPU = "NVIDIA H200"
WORK = Workload(prompts=(4,), answer=10, batches=(1, 8), runs=2, warm_ups=1)
ONE, EIGHT = (request.name for request in WORK.whole())
FIRSTS = {f"batch {batch}, 1 after 4": [0.05] for batch in (1, 8)}
MODEL = "GPT of 1.56 billion parameters"
# A server that answers its readiness endpoint, prints its options, and ends well on SIGTERM.
PROGRAM = """
import http.server, signal, sys
print(" ".join(sys.argv[1:]), flush=True)
if "--bad" in sys.argv:
    sys.exit("error: creating server: it is bad")
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/v2/health/ready" else 404)
        self.end_headers()
    def log_message(self, *_):
        pass
def end(*_):
    print("ended well", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
port = next(word for word in sys.argv if word.startswith("--http-port=")).partition("=")[2]
http.server.HTTPServer(("127.0.0.1", int(port)), Ready).serve_forever()
"""


@dataclass
class Counting:
    """A side that answers every prompt with 0, 1, 2, ... (at most `most` tokens)."""

    name: str
    log: list[str] = field(default_factory=list)
    most: int = 10
    failure: Exception | None = None
    prompt: int | None = None

    def answer(self, prompts: Sized, length: int) -> list[list[int]]:
        self.log.append(self.name)
        if self.failure:
            raise self.failure
        return [list(range(min(length, self.most))) for _ in range(len(prompts))]


def written(folder: Path, shape: Tiny) -> Path:
    """Return config.ini, and a file of the right size for each tensor."""
    made = folder / "1-gpu"
    weights.write_config(shape.config(), made)
    for each in shape.files():
        with (made / each.name).open("wb") as file:
            file.truncate(2 * math.prod(each.size))
    return made


def program(folder: Path) -> Sequence[str]:
    file = folder / "program.py"
    file.write_text(PROGRAM)
    return (sys.executable, str(file))


def found(
    compared: Compared, sessions: Sequence[Session] = (), variants: Sequence[Variant] = ()
) -> job.Found:
    place = Place(Path("/nowhere"), server.INSIDE)
    described = job.Job(Command(place, ()), "", Path(), variants or (server.SHIPPED,), Shape(), WORK)
    first = Session("shipped", 8.0, "0", dict(compared.times[FT]))
    return job.Found(described, {"gpu": GPU}, first, compared, sessions)


@pytest.mark.parametrize("shape", TINIES, ids=lambda shape: shape.family)
def test_a_random_model_has_all_files_that_models_yaml_expects(shape: Tiny, tmp_path: Path) -> None:
    config = loader.load(ROOT / "buildcfg")
    converter = find_converter(config, "24.10", shape.family)
    made, facts = written(tmp_path, shape), FACTS[shape.family]
    assert list(converted.complaints(made, converter, facts, 1, "fp16")) == []
    shared = tmp_path / "2-gpu"
    shape.share(made, shared, 2)
    assert list(converted.complaints(shared, converter, facts, 2, "fp16")) == []


@pytest.mark.parametrize("shape", TINIES, ids=lambda shape: shape.family)
def test_each_gpu_gets_its_heads_of_queries_keys_and_values(shape: Tiny, tmp_path: Path) -> None:
    made, shared = written(tmp_path, shape), tmp_path / "2-gpu"
    joined = [each for each in shape.files() if re.search(r"(query_key_value|qkv)\.weight", each.name)]
    assert joined
    for file in joined:
        rows, _, width = file.size
        columns = np.arange(3 * width, dtype=np.float16)  # of queries, keys and values
        np.tile(columns, (rows, 1)).tofile(made / file.name)
    shape.share(made, shared, 2)
    for file in joined:
        rows, _, width = file.size
        for gpu in range(2):
            own = np.fromfile(shared / file.name.replace(".0.bin", f".{gpu}.bin"), np.float16)
            heads = np.arange(width // 2) + gpu * width // 2
            expected = [heads + matrix * width for matrix in range(3)]
            assert (own.reshape(rows, 3, width // 2) == np.array(expected)).all()


def test_weights_for_two_gpus_say_so(tmp_path: Path) -> None:
    TINY.share(written(tmp_path, TINY), tmp_path / "2-gpu", 2)
    assert "tensor_para_size = 2" in (tmp_path / "2-gpu" / "config.ini").read_text()


@pytest.mark.parametrize(
    ("shape", "billions", "of_a_step"),
    [
        (gpt.Shape(), 1.56, 1.56),
        (gptj.Shape(), 6.05, 5.84),
        (gptneox.Shape(), 6.86, 6.65),
        # The decoder without keys and values of the prompt, and the head.
        (t5.Shape(), 2.85, 1.44),
    ],
    ids=lambda value: getattr(value, "family", ""),
)
def test_the_default_models_have_the_sizes_that_they_are_named_after(
    shape: Architecture, billions: float, of_a_step: float
) -> None:
    assert shape.parameters == pytest.approx(billions * 1e9, rel=0.003)
    assert shape.step == pytest.approx(of_a_step * 1e9, rel=0.003)


def test_the_default_llama_has_the_6_738_billion_parameters_of_llama_2() -> None:
    """As the model card of LLaMA-2 7B counts them: 6,738,415,616."""
    assert llama.Shape().parameters == 6_738_415_616


def test_the_numbers_of_a_model_are_those_of_its_family(tmp_path: Path) -> None:
    (tmp_path / "config.pbtxt").touch()
    words = ["--image", "x", "--template", str(tmp_path / "config.pbtxt"), "--out", str(tmp_path)]

    def shape(*options: str) -> object:
        return command_line.described(command_line.parser().parse_args([*words, *options])).shape

    assert shape() == Shape()
    assert shape("--family", "t5", "--head-size", "64") == t5.Shape(head_size=64)
    assert shape("--layers", "3") == Shape(layers=3)
    assert shape("--family", "llama", "--kv-heads", "8") == llama.Shape(kv_heads=8)
    with pytest.raises(ConfigError, match="--kv-heads is not a number of a GPT"):
        shape("--kv-heads", "8")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--prompts", "2000"), "--prompts: 2000 tokens with an answer of 128 are more than 2048"),
        (("--family", "gptj", "--positions", "100"), "128 tokens with an answer of 128 are more than 100"),
        (("--template", "/nowhere"), "--template: there is no such file"),
        (("--prompts", "0"), "argument --prompts: must be a number from 1, not '0'"),
        (("--batches", "1", "-8"), "argument --batches: must be a number from 1, not '-8'"),
        (("--rounds", "many"), "argument --rounds: must be a number from 1, not 'many'"),
        (("--runs", "0"), "argument --runs: must be a number from 1, not '0'"),
        (("--minutes", "soon"), "argument --minutes: invalid float value: 'soon'"),
    ],
)
def test_wrong_options_end_with_2_and_a_message_before_anything_is_made(
    options: tuple[str, ...],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "config.pbtxt").touch()
    words = ["--image", "x", "--template", str(tmp_path / "config.pbtxt"), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["inference", *words, *options])
    monkeypatch.setattr(server_options, "lacking", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        sys.exit(command_line.main())
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()


def test_ctrl_c_before_anything_is_measured_ends_without_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: job.Job) -> job.Found:
        raise KeyboardInterrupt

    (tmp_path / "config.pbtxt").touch()
    words = ["--image", "x", "--template", str(tmp_path / "config.pbtxt"), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["inference", *words])
    monkeypatch.setattr(server_options, "lacking", lambda *_: None)
    monkeypatch.setattr(job, "run", interrupted)
    assert command_line.main() == Interrupted.exit_code
    assert "there is no record" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_single_request_does_not_wait_for_a_batch(tmp_path: Path) -> None:
    template = """
        name: "fastertransformer" backend: "fastertransformer" max_batch_size: 8
        dynamic_batching { max_queue_delay_microseconds: 50000 }
        parameters { key: "model_checkpoint_path" value: { string_value: "/data" } }
    """
    made = config_pbtxt.parse(job.config(template, written(tmp_path, TINY)))
    assert made.HasField("dynamic_batching")
    assert made.dynamic_batching.max_queue_delay_microseconds == 0
    assert made.parameters["data_type"].string_value == "fp16"
    assert "model_checkpoint_path" not in made.parameters


def test_sides_take_turns_and_the_first_one_changes() -> None:
    log: list[str] = []
    measure.compare([Counting("a", log), Counting("b", log)], Workload((4,), 10, (1,), 2, 2), 96)
    assert log == [*"aabb", *"ab", *"ba"] * 2  # a whole answer, then its first token


def test_a_side_can_be_asked_with_prompts_of_one_length_alone() -> None:
    log: list[str] = []
    two = Workload((4, 9), 10, (1,), 1, 1)
    compared = measure.compare([Counting("a", log), Counting("b", log, prompt=4)], two, 96)
    assert [len(compared.times[name]) for name in "ab"] == [4, 2]


def test_a_failed_side_is_left_out_and_named() -> None:
    sides = [Counting(FT), Counting("plain"), Counting("compiled", failure=RuntimeError("no compiler"))]
    compared = measure.compare(sides, WORK, 96)
    assert compared.failures == {"compiled": f"{ONE}: RuntimeError: no compiler"}
    every = [request.name for request in WORK.requests()]
    assert [list(compared.times[name]) for name in (FT, "plain", "compiled")] == [every, every, []]
    assert sides[2].log == ["compiled"]


def test_an_answer_that_is_too_short_ends_the_measurement_of_ours() -> None:
    with pytest.raises(ValueError, match=r"gave \[3\] tokens, not 10"):
        measure.compare([Counting(FT, most=3)], WORK, 96)


def test_prompts_are_the_same_in_every_run_and_lack_the_end_token() -> None:
    request = measure.Request(prompt=4, batch=8, answer=10)
    first, second = (request.prompts(TINY.end) for _ in range(2))
    assert (first == second).all()
    assert first.shape == (8, 4)
    assert first.max() < TINY.end


def test_equal_tokens_are_counted_up_to_the_first_difference() -> None:
    assert measure.equal_tokens([[1, 2, 3], [1, 2, 3]], [[1, 2, 3], [1, 9, 3]]) == [3, 1]


def test_ours_is_compared_with_each_variant_of_transformers() -> None:
    times = {
        FT: {ONE: [0.1, 0.05, 0.4], EIGHT: [0.2], **FIRSTS},
        "plain": {ONE: [0.4], EIGHT: [0.4], **FIRSTS},
        "compiled": {ONE: [0.2], EIGHT: [0.1], **FIRSTS},
    }
    answers = {name: {ONE: [[1]], EIGHT: [[1]] * 8} for name in times}
    of = report.data(found(Compared(times, answers, {})))
    ratios = [f for f in report.figures(of) if f" of {FT} / " in f.what]
    assert {f.what: f.value for f in ratios} == pytest.approx(
        {
            f"{MODEL}, {ONE}: tokens/s of {FT} / plain": 4,
            f"{MODEL}, {ONE}: tokens/s of {FT} / compiled": 2,
            f"{MODEL}, {EIGHT}: tokens/s of {FT} / plain": 2,
            f"{MODEL}, {EIGHT}: tokens/s of {FT} / compiled": 0.5,
        }
    )
    assert [f.what for f in ratios if not f.met] == [f"{MODEL}, {EIGHT}: tokens/s of {FT} / compiled"]
    titles, rows = report.table(of)
    assert titles == ("prompt", "batch", f"{FT}, 1 start", "plain", "compiled")
    assert rows[0] == (
        *("4", "1", "100 (100 to 100); 50 ms"),
        *("25 (25 to 25); 50 ms; 1 equal", "50 (50 to 50); 50 ms; 1 equal"),
    )


def lives(*seconds: float) -> Data:
    """Return the data of a server that was started once for each, and of one side that takes 0.2 s."""
    first, *later = ({ONE: [taken], EIGHT: [taken], **FIRSTS} for taken in seconds)
    times = {FT: first, "compiled": {ONE: [0.19, 0.2, 0.3], EIGHT: [0.2], **FIRSTS}}
    answers = {name: {ONE: [[1]], EIGHT: [[1]] * 8} for name in times}
    sessions = [Session("shipped", 4, "0", taken) for taken in later]
    return report.data(found(Compared(times, answers, {}), sessions))


def only(of: Data, end: str) -> Figure:
    (figure,) = (f for f in report.figures(of) if f.what.endswith(end))
    return figure


def test_a_ratio_is_over_all_starts_of_the_server_and_judged_by_the_slowest() -> None:
    end = f"{ONE}: tokens/s of {FT} / compiled"
    good, bad = only(lives(0.1, 0.125, 0.16), end), only(lives(0.1, 0.125, 0.25), end)
    assert [good.value, good.least, good.most] == pytest.approx([1.6, 1.25, 2])
    assert (good.met, bad.met) == (True, False)
    assert bad.value == pytest.approx(1.6)
    assert "3 starts" in good.how
    assert "slowest start" in good.how


def test_the_rate_of_one_row_is_compared_with_what_the_memory_of_the_gpu_allows() -> None:
    """An H200 reads 4.8 TB/s, so the 1.556 billion numbers of a step 1,542 times a second."""
    part = only(lives(0.1, 0.125, 0.16), "limit of the memory")
    of_limit = 2 * Shape().step / 4.8e12
    assert [part.least, part.value, part.most] == pytest.approx(
        [62.5 * of_limit, 80 * of_limit, 100 * of_limit]
    )
    assert (part.goal, part.met) == (0.6, False)
    unknown = {**lives(0.1), "gpu": "another"}
    assert not [f for f in report.figures(unknown) if f.what.endswith("limit of the memory")]


def test_the_figures_follow_from_what_the_record_holds(tmp_path: Path) -> None:
    """JSON has tuples as lists."""
    of = lives(0.1, 0.125, 0.16)
    again = json.loads(json.dumps(of))
    assert list(report.figures(again)) == list(report.figures(of))
    assert report.charts(again) == report.charts(of)
    assert report.table(again) == report.table(of)
    old = Result("inference", "real", (), Machine("", 1, 1, "", 0.0), "", again, subject="gpt")
    assert inference.recomputed(old).figures == tuple(report.figures(of))
    assert old.file == "inference-gpt-real.json"
    title, _, head, line, *rows = catalogue.details(old).splitlines()
    assert title.startswith(f"{MODEL}, fp16, 10 tokens on one {GPU}")
    assert head.startswith("| prompt | batch | FasterTransformer, 3 starts |")
    assert set(line) == set("| -")
    assert len(rows) == 2


def test_variants_are_compared_with_the_first_one_by_their_starts() -> None:
    compared = Compared({FT: {ONE: [0.1], EIGHT: [0.1], **FIRSTS}}, {FT: {}}, {})
    sessions = [
        Session(name, ready, "0", {ONE: [one], EIGHT: [eight], **FIRSTS})
        for name, ready, one, eight in (
            ("shipped", 8, 0.2, 0.2),
            ("shipped", 8, 0.2, 0.4),
            ("nvtx", 4, 0.4, 0.4),
            ("nvtx", 4, 0.2, 0.4),
        )
    ]
    of = report.data(found(compared, sessions, (server.SHIPPED, Variant("nvtx"))))
    values = {f.what: (f.value, f.least, f.most) for f in report.figures(of) if "nvtx" in f.what}
    assert values == {
        f"{ONE}: tokens/s of nvtx / shipped": pytest.approx((0.75, 0.5, 1)),
        f"{EIGHT}: tokens/s of nvtx / shipped": pytest.approx((2 / 3, 0.5, 1)),
        "time to ready of nvtx / shipped": pytest.approx((0.5, 0.5, 0.5)),
    }
    assert [chart.name for chart in report.charts(of)] == ["inference-gpt-4", "inference-gpt-variants"]


def test_the_record_names_the_library_of_a_variant(tmp_path: Path) -> None:
    (tmp_path / server.LIBRARY).write_bytes(b"ELF")
    compared = Compared({FT: {ONE: [0.1], EIGHT: [0.1]}}, {FT: {}}, {})
    variants = (server.SHIPPED, Variant("nvtx", tmp_path, cpus="0-3"))
    sessions = [Session(v.name, 4, "0", {ONE: [0.2], EIGHT: [0.4]}) for v in variants]
    settings = report.data(found(compared, sessions, variants))["variants"]
    digest = hashlib.sha256(b"ELF").hexdigest()
    assert settings == {"shipped": {}, "nvtx": {"cpus": "0-3", "library": f"sha256:{digest}"}}


def test_a_server_is_ready_when_its_endpoint_answers_and_ended_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        server, "_mapped", lambda: iter(())
    )  # servers that other tests have started meanwhile
    launcher = Command(Place(tmp_path / "model", "/seen"), program(tmp_path))
    log = tmp_path / "log"
    with server.started(launcher, Variant("ours", tmp_path, {}), log) as running:
        assert 0 < running.ready_seconds < 30
        assert running.grpc.startswith("127.0.0.1:")
    options, end = log.read_text().splitlines()
    assert options.split()[0] == "--model-repository=/seen/models"
    assert options.split()[-1] == "--backend-directory=/seen/backends/ours"
    assert end == "ended well"


def test_a_server_sees_one_gpu_by_default(tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text('echo "sees $CUDA_VISIBLE_DEVICES"\n')
    launcher = Command(Place(tmp_path, "/seen"), ("sh", str(script)))
    for environment, seen in (({}, "0"), ({"CUDA_VISIBLE_DEVICES": "1"}, "1")):
        with (
            pytest.raises(SmokeError, match=f"sees {seen}"),
            server.started(launcher, Variant("ours", None, environment), tmp_path / "log"),
        ):
            pass


@pytest.mark.parametrize(
    ("visible", "gpus", "seen"),
    [
        (None, 2, "0,1"),
        ("3", 1, "3"),
        ("2, 3,1", 2, "2,3"),
        ("GPU-8932f937,GPU-aa00", 1, "GPU-8932f937"),
        ("", 1, None),
        ("2", 2, None),
    ],
)
def test_a_server_sees_no_gpus_that_the_benchmark_does_not_see(
    visible: str | None, gpus: int, seen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(server.VISIBLE, raising=False)
    if visible is not None:
        monkeypatch.setenv(server.VISIBLE, visible)
    if seen:
        assert server.seeing(gpus) == {server.VISIBLE: seen}
        return
    with pytest.raises(ConfigError, match=f"{server.VISIBLE} is '{visible}': {gpus} needed"):
        server.seeing(gpus)


def test_a_server_that_ends_too_early_is_quoted(tmp_path: Path) -> None:
    launcher = Command(Place(tmp_path, "/seen"), (*program(tmp_path), "--bad"))
    with (
        pytest.raises(SmokeError, match=r"ended with code 1.*\n.*it is bad"),
        server.started(launcher, server.SHIPPED, tmp_path / "log"),
    ):
        pass


def test_a_server_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "END_SECONDS", 0.1)
    deaf = tmp_path / "deaf.py"
    deaf.write_text(PROGRAM.replace("signal.SIGTERM, end", f"{int(signal.SIGTERM)}, signal.SIG_IGN"))
    launcher = Command(Place(tmp_path, "/seen"), (sys.executable, str(deaf)))
    with server.started(launcher, server.SHIPPED, tmp_path / "log"):
        pass
    assert "ended well" not in (tmp_path / "log").read_text()


def test_libraries_of_a_variant_lie_where_its_server_looks(tmp_path: Path) -> None:
    library = tmp_path / "build"
    library.mkdir()
    (library / server.LIBRARY).write_bytes(b"ELF")
    server.equip(Place(tmp_path / "model", "/seen"), Variant("nvtx", library))
    assert (tmp_path / "model/backends/nvtx/fastertransformer" / server.LIBRARY).read_bytes() == b"ELF"


def test_a_container_gets_gpu_folder_environment_and_cores() -> None:
    image, variant = (
        Image(Place(Path("/here"), "/seen"), "image:tag", "cdi"),
        Variant("x", None, {"A": "b"}, "0-3"),
    )
    argv = image.argv(["--http-port=1"], variant)
    assert argv[:2] == ["docker", "run"]
    before, after = argv[: argv.index("image:tag")], argv[argv.index("image:tag") + 1 :]
    assert {"--device=nvidia.com/gpu=all", "--env=A=b", "--cpuset-cpus=0-3"} <= set(before)
    assert "--mount=type=bind,source=/here,target=/seen,readonly" in before
    assert after[0] == "mpirun"
    assert after[-2:] == ["tritonserver", "--http-port=1"]


def test_a_command_is_bound_to_cores_only_on_request() -> None:
    command = Command(Place(Path("/here"), "/seen"), ("tritonserver",))
    first_gpu, started = "CUDA_VISIBLE_DEVICES=0", ["tritonserver", "--x"]
    bound = Variant("x", cpus="4")
    assert command.argv(["--x"], bound) == ["env", first_gpu, "taskset", "--cpu-list", "4", *started]
    assert command.argv(["--x"], Variant("x")) == ["env", first_gpu, *started]


def test_a_variant_may_be_another_image() -> None:
    launcher = Image(Place(Path("/here"), "/seen"), "image:tag", "cdi")
    argv = launcher.argv([], server_options.variant(["newer", "image=other:tag"]))
    assert "other:tag" in argv
    assert "image:tag" not in argv


def test_the_labels_of_an_image_name_its_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = tmp_path / "docker"
    docker.write_text(
        """#!/bin/sh
for image; do :; done
case $image in
    ours*) echo "{\\"io.ftbuild.cell\\": \\"$image-sm80\\", \\"io.ftbuild.key\\": \\"k\\"} sha256:1" ;;
    foreign) echo "null sha256:2" ;;
    *) exit 1 ;;
esac
"""
    )
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    launcher = Image(Place(Path("/here"), "/seen"), "ours", "cdi")
    assert launcher.cell(server.SHIPPED) == Measured("ours-sm80", "k", {"runtime": "sha256:1"})
    assert launcher.cell(Variant("x", image="ours2")) == Measured("ours2-sm80", "k", {"runtime": "sha256:1"})
    assert launcher.cell(Variant("x", image="foreign")) is None
    assert launcher.cell(Variant("x", image="missing")) is None
    assert Command(Place(Path("/here"), "/seen"), ()).cell(server.SHIPPED) is None


def test_a_server_without_a_container_has_no_images(tmp_path: Path) -> None:
    (tmp_path / "config.pbtxt").touch()
    words = ["--template", str(tmp_path / "config.pbtxt"), "--out", str(tmp_path)]
    options = ["--server", "tritonserver", "--variant", "newer", "image=other:tag"]
    with pytest.raises(ConfigError, match="--variant newer: only --image runs images"):
        command_line.described(command_line.parser().parse_args([*words, *options]))


def test_a_variant_has_a_library_cores_and_an_environment(tmp_path: Path) -> None:
    (tmp_path / server.LIBRARY).touch()
    assert server_options.variant(["c", "cpus=0-7", "X=1"]) == Variant("c", None, {"X": "1"}, "0-7")
    assert server_options.variant(["a", f"library={tmp_path}", "X=1=2"]) == Variant(
        "a", tmp_path, {"X": "1=2"}
    )
    assert server_options.variant(["b"]) == Variant("b")


@pytest.mark.parametrize("words", [["a", "library"], ["a", "library=/nowhere"]])
def test_an_invalid_variant_is_refused(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="--variant a"):
        server_options.variant(words)


def test_the_run_needs_a_new_folder(tmp_path: Path) -> None:
    place = Place(tmp_path, server.INSIDE)
    with pytest.raises(ConfigError, match="exists already"):
        job.run(job.Job(Command(place, ()), "", tmp_path / "out", (server.SHIPPED,), TINY, WORK))
    assert tmp_path.is_dir()
