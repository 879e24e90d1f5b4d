"""Calibration of the inputs of experts: those of the tokens that chose an expert."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.progress import Silent
from graphgen.runtime.quantization.calibration import calibrate_inputs
from tests.oracles.families import ORACLES, save

WINDOW = 16


def largest_inputs(model: Any, windows: list[list[int]]) -> list[tuple[float, float]]:
    """Of each layer's experts, the largest inputs of the first two products and of the last."""
    found: dict[str, tuple[float, float]] = {}

    def watch(name: str) -> Any:
        def hook(module: Any, given: tuple[torch.Tensor, ...]) -> None:
            x, index = given[0].reshape(-1, given[0].shape[-1]), given[1]
            first, last = found.get(name, (0.0, 0.0))
            for expert in index.unique().tolist():
                rows = x[(index == expert).any(-1)]
                gate, up = (rows @ module.gate_up_proj[expert].T).chunk(2, -1)
                hidden = torch.nn.functional.silu(gate) * up
                first = max(first, float(rows.abs().max()))
                last = max(last, float(hidden.abs().max()))
            found[name] = first, last

        return hook

    for name, module in model.named_modules():
        if name.endswith("experts"):
            module.register_forward_pre_hook(watch(name))
    with torch.no_grad():
        for window in windows:
            model(torch.tensor([window]))
    return list(found.values())


def test_ranges_of_experts_are_those_of_their_tokens(tmp_path: Path):
    model = ORACLES["mixtral"].model(initializer_range=0.1)
    save(model, tmp_path)
    windows = np.random.default_rng(1).integers(0, 61, (2, WINDOW)).tolist()
    ranges = calibrate_inputs(open_checkpoint(tmp_path), windows, Silent())
    wanted = largest_inputs(model, windows)
    stacks = {name: value for name, value in ranges.items() if ".experts." in name}
    assert len(stacks) == 3 * len(wanted) > 0
    for layer, (first, last) in enumerate(wanted):
        gate, up, down = [value for name, value in stacks.items() if f"layers.{layer}." in name]
        assert gate == up == pytest.approx(first, rel=1e-4)
        assert down == pytest.approx(last, rel=1e-4)
