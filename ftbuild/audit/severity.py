"""How bad a hole is: base scores of CVSS v3 vectors, and the classes that scores fall into.

The formula and its numbers are those of CVSS v3.1, 7.1 and 7.4 (first.org/cvss/v3-1/specification-document).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ftbuild.config import holes

# The lowest score of each class, worst first (CVSS v3.1, 5).
CLASSES: Mapping[str, float] = {"critical": holes.CRITICAL, "high": 7.0, "medium": 4.0, "low": 0.1}
UNKNOWN = "unknown"
# Words of databases that give no vector: GitHub's. Each stands for the lowest score of its class.
_WORDS = {"CRITICAL": "critical", "HIGH": "high", "MODERATE": "medium", "MEDIUM": "medium", "LOW": "low"}
_METRICS: Mapping[str, Mapping[str, float]] = {
    "AV": {"N": 0.85, "A": 0.62, "L": 0.55, "P": 0.2},
    "AC": {"L": 0.77, "H": 0.44},
    "PR": {"N": 0.85, "L": 0.62, "H": 0.27},
    "UI": {"N": 0.85, "R": 0.62},
    "S": {"U": 0, "C": 1},
    "C": {"H": 0.56, "L": 0.22, "N": 0},
    "I": {"H": 0.56, "L": 0.22, "N": 0},
    "A": {"H": 0.56, "L": 0.22, "N": 0},
}
_PRIVILEGES_BEYOND = {"N": 0.85, "L": 0.68, "H": 0.5}


def name(score: float | None) -> str:
    """Return the class of a score; `unknown` without one, `none` for 0."""
    if score is None:
        return UNKNOWN
    return next((word for word, least in CLASSES.items() if score >= least), "none")


def of_record(*parts: Mapping[str, Any]) -> float | None:
    """Return the highest score that parts of an OSV record state; None where they state none that is known.

    A CVSS v4 vector alone gives none: its score needs a table of 270 rows. What Debian calls unimportant,
    since it is no danger in its package, has the score 0.
    """
    if any(_urgency(part) == "unimportant" for part in parts):
        return 0.0
    scores = [found for part in parts for found in _stated(part)]
    return max(scores, default=None)


def base_score(vector: str) -> float | None:
    """Return the base score of a CVSS v3.0 or v3.1 vector; None for any other text."""
    version, *fields = vector.split("/")
    if version not in ("CVSS:3.0", "CVSS:3.1"):
        return None
    given = dict(field.split(":", 1) for field in fields if ":" in field)
    if any(given.get(metric) not in values for metric, values in _METRICS.items()):
        return None
    value = {metric: values[given[metric]] for metric, values in _METRICS.items()}
    beyond = given["S"] == "C"
    if beyond:
        value["PR"] = _PRIVILEGES_BEYOND[given["PR"]]
    base = 1 - (1 - value["C"]) * (1 - value["I"]) * (1 - value["A"])
    impact = 7.52 * (base - 0.029) - 3.25 * (base - 0.02) ** 15 if beyond else 6.42 * base
    if impact <= 0:
        return 0.0
    reach = 8.22 * value["AV"] * value["AC"] * value["PR"] * value["UI"]
    return _rounded_up(min((impact + reach) * (1.08 if beyond else 1), 10))


def _urgency(part: Mapping[str, Any]) -> Any:
    own = part.get("ecosystem_specific")
    return own.get("urgency") if isinstance(own, dict) else None


def _stated(part: Mapping[str, Any]) -> list[float]:
    listed = part.get("severity")
    vectors = (
        [each.get("score") for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    )
    scores = [score for text in vectors if isinstance(text, str) and (score := base_score(text)) is not None]
    own = part.get("database_specific")
    word = own.get("severity") if isinstance(own, dict) else None
    if not scores and isinstance(word, str) and word.upper() in _WORDS:
        scores.append(CLASSES[_WORDS[word.upper()]])
    return scores


def _rounded_up(score: float) -> float:
    """Return the smallest number with one decimal that is not below the score (appendix A)."""
    whole = round(score * 100_000)
    return whole / 100_000 if whole % 10_000 == 0 else (math.floor(whole / 10_000) + 1) / 10
