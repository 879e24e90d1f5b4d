"""Outcomes of configurations of vLLM, made in its environment: JSON from stdin to a file.

The input has ``engine``, arguments of ``EngineArgs``, and ``changes``, each of them further ones;
the output has the text of each error, empty for none.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def outcome(arguments: dict[str, Any]) -> str:
    from vllm.engine.arg_utils import EngineArgs  # pyright: ignore[reportMissingImports]

    try:
        EngineArgs(**arguments).create_engine_config()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    given = json.load(sys.stdin)
    found = [outcome({**given["engine"], **change}) for change in given["changes"]]
    Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")
