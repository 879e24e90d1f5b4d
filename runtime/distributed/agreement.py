"""Record a process's versions, weights and options, and compare them between processes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from importlib.metadata import version

from graphgen.analysis import fingerprint
from graphgen.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.version import __version__

# By name; a value is compared and shown as text.
Record = Mapping[str, str]
# Texts longer than this are shown by their hash.
_SHOWN = 40


def record_of(
    config: Mapping[str, object], weights: str, settings: CompileConfig, module: Module
) -> Record:
    """Versions, hashes of weights and programs, and each value of the configurations.

    Args:
        config: of the model, as in ``config.json``.
        weights: the checkpoint's fingerprint.
        settings: of the compilation.
        module: the programs.
    """
    asked = {f"option {name}": _text(value) for name, value in asdict(settings).items()}
    named = {f"config.json {name}": _text(value) for name, value in config.items()}
    return {
        "version of graphgen": __version__,
        "version of jaxlib": version("jaxlib"),
        **asked,
        **named,
        "hash of the weights": weights[:16],
        "hash of the programs": fingerprint(module)[:16],
    }


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def require_agreement(records: Sequence[Record]) -> None:
    """Refuse records that differ (GG0709), naming the first differences.

    Args:
        records: of each process.
    """
    names = {name: None for record in records for name in record}
    parted: list[str] = []
    for name in names:
        values = [record.get(name, "missing") for record in records]
        others = [index for index, value in enumerate(values) if value != values[0]]
        if others:
            other = others[0]
            parted.append(
                f"{name}: {_shown(values[0])} in process 0, {_shown(values[other])} in process "
                + ", ".join(str(index) for index in others if values[index] == values[other])
            )
    if parted:
        rest = f"; and {len(parted) - 3} more" if len(parted) > 3 else ""
        raise GraphgenError(
            "GG0709",
            f"the processes do not run the same program: {'; '.join(parted[:3])}{rest}",
            help="give every node the same files, the same options and the same installation",
        )


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"sha256 {sha256(text.encode()).hexdigest()[:12]}"
