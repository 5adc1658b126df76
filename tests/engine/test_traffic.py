"""The rehearsal of the traffic benchmark on the sample's server."""

from __future__ import annotations

from pathlib import Path

from benchmarks.topics.traffic import report, standard
from ftbuild.plan import Plan
from testing import ROOT

CONFIG = ROOT / "sample/upstream/fastertransformer_backend/base/all_models/gpt/fastertransformer/config.pbtxt"


def test_every_request_of_every_load_is_answered_as_alone(built: Plan, tmp_path: Path) -> None:
    """From clients in closed loops and at a rate, all streamed, so that the first tokens are timed."""
    found = standard.rehearse(built.tag("runtime"), CONFIG.read_text(), tmp_path)
    (session,) = found["sessions"]
    assert list(session["loads"]) == [load.name for load in standard.REHEARSED]
    for name, seen in session["loads"].items():
        drawn = found["traces"][name]
        assert (seen["failures"], seen["checked"], seen["unlike"]) == ({}, standard.CHECKED, 0)
        assert len(report.latencies(seen, drawn)) == drawn["requests"]
        firsts, ends = report.first_tokens(seen, drawn), report.latencies(seen, drawn)
        assert all(0 < first <= end for first, end in zip(firsts, ends, strict=True))
    assert all(figure.met in (True, None) for figure in report.figures(found))
