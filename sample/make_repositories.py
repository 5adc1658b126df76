#!/usr/bin/env python3
"""The git repositories of the sample stack: make_repositories.py FOLDER

Author, dates and content are fixed, so every machine gets the same commit ids, and the lock of the sample
stack can be committed. A folder that is up to date is left alone.

Each folder below `upstream/` has `base`, a tree, and `history.toml`, its states, newest first. The newest is
`base`; each older one is made from its successor: `patches` are applied, then `remove` is deleted.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

UPSTREAM = Path(__file__).resolve().parent / "upstream"
# Repositories that others have as a submodule come first.
REPOSITORIES = ("cutlass", "core", "common", "backend", "FasterTransformer", "fastertransformer_backend")
STAMP = "made-from.sha256"
NO_CACHES = shutil.ignore_patterns("__pycache__", "*.pyc")


def make_repositories(folder: Path) -> dict[str, str]:
    """Write `<name>.git` for every miniature below `folder`; return the commits of HEAD by name."""
    folder.mkdir(parents=True, exist_ok=True)
    fingerprint = _fingerprint()
    stamp = folder / STAMP
    if not stamp.exists() or stamp.read_text() != fingerprint:
        stamp.unlink(missing_ok=True)
        heads: dict[str, str] = {}
        for name in REPOSITORIES:
            heads[name] = _make(UPSTREAM / name, folder / f"{name}.git", heads)
        stamp.write_text(fingerprint)
    return {name: _git(["rev-parse", "HEAD"], folder / f"{name}.git") for name in REPOSITORIES}


def _make(source: Path, repository: Path, heads: dict[str, str]) -> str:
    """Write one bare repository; return the commit of its newest state."""
    states = tomllib.loads((source / "history.toml").read_text())["state"]
    with tempfile.TemporaryDirectory() as scratch:
        bare = Path(scratch) / "bare"
        tree = Path(scratch) / "tree"
        shutil.copytree(source / "base", tree, ignore=NO_CACHES)
        _git(
            [
                "init",
                "--quiet",
                "--bare",
                "--object-format=sha1",
                f"--initial-branch={_main(states)}",
                str(bare),
            ]
        )
        # The project fetches by commit, shallow and without what a sparse tree leaves out.
        for setting in ("allowAnySHA1InWant", "allowFilter"):
            _git(["config", f"uploadpack.{setting}", "true"], bare)
        trees = []
        for state in states:
            _rewind(source, tree, state)
            trees.append(_write_tree(bare, tree, state, heads))
        commit = ""
        for state, written in reversed(list(zip(states, trees, strict=True))):
            parent = ["-p", commit] if commit else []
            commit = _git(["commit-tree", written, *parent, "-m", state["subject"]], bare, date=state["date"])
            for ref in state.get("refs", ()):
                _git(["update-ref", ref, commit], bare)
        _git(["update-server-info"], bare)  # for plain HTTP servers
        shutil.rmtree(repository, ignore_errors=True)
        shutil.move(bare, repository)
    return commit


def _main(states: list[dict[str, Any]]) -> str:
    """Return the branch that the newest state names first."""
    return str(states[0]["refs"][0]).removeprefix("refs/heads/")


def _rewind(source: Path, tree: Path, state: dict[str, Any]) -> None:
    """Turn the tree of the next newer state into that of `state`."""
    for patch in state.get("patches", ()):
        # A repository above the tree would make git skip the files outside of it.
        _git(["apply", "-p1", str(source / patch)], cwd=tree)
    for path in map(tree.joinpath, state.get("remove", ())):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _write_tree(bare: Path, tree: Path, state: dict[str, Any], heads: dict[str, str]) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        index = {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
        _git([f"--work-tree={tree}", "add", "--all", "--force", "."], bare, cwd=tree, extra=index)
        for path, name in state.get("submodules", {}).items():
            _git(["update-index", "--add", "--cacheinfo", f"160000,{heads[name]},{path}"], bare, extra=index)
        return _git(["write-tree"], bare, extra=index)


def _git(
    arguments: list[str],
    repository: Path | None = None,
    *,
    date: str = "2022-01-01",
    cwd: Path | None = None,
    extra: dict[str, str] | None = None,
) -> str:
    """Run git without the user's settings, and return its output."""
    where = (
        {"GIT_DIR": str(repository)}
        if repository
        else {"GIT_CEILING_DIRECTORIES": str((cwd or Path("/")).parent)}
    )
    environment = {
        "PATH": os.environ["PATH"],
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        **{f"GIT_{who}_NAME": "ftbuild sample" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "sample@example.com" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_DATE": f"{date}T12:00:00+00:00" for who in ("AUTHOR", "COMMITTER")},
        **where,
        **(extra or {}),
    }
    done = subprocess.run(["git", *arguments], cwd=cwd, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def _fingerprint() -> str:
    """Return the sha256 over all inputs of the repositories, file modes included."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted(UPSTREAM.rglob("*")):
        if path.is_file() and not {"__pycache__"} & set(path.parts):
            executable = path.stat().st_mode & 0o100
            digest.update(f"{path.relative_to(UPSTREAM)} {executable}\n".encode() + path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for repository, head in make_repositories(Path(sys.argv[1]).resolve()).items():
        print(f"{head}  {repository}.git")
