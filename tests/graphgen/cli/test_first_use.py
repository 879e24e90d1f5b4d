"""What a new user meets first: files that are not there, small programs, training steps."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from tests.graphgen.cli.conftest import done, error, facts

SMALL = """HloModule m
ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4] parameter(0)
  ROOT %y = f32[4] negate(%x)
}
"""


def test_names_like_that_of_a_missing_file_are_given(tmp_path: Path):
    (tmp_path / "train_step.pb").write_text("")
    assert "help: did you mean train_step.pb?" in error("inspect", tmp_path / "train_setp.pb")
    assert "there is no folder" in error("inspect", tmp_path / "no" / "train_step.pb")


def test_small_costs_are_not_zero(tmp_path: Path):
    path = tmp_path / "s.hlo"
    path.write_text(SMALL)
    text = done("cost", path).stdout
    assert "0.00 ms" not in text
    assert "0.00 GFLOP" not in text
    assert "0.000 GB of device" not in text


@pytest.mark.parametrize("form", ["hlo", "mlir"])
def test_donated_weights_of_a_training_step_are_drawn(tmp_path: Path, form: str):
    def step(w: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        loss = (x @ w).sum()
        return w - 0.1 * x.T @ jnp.ones((8, 2)), loss

    lowered = jax.jit(step, donate_argnums=0).lower(jnp.ones((4, 2)), jnp.ones((8, 4)))
    path = tmp_path / f"t.{form}"
    path.write_text(lowered.as_text("hlo") if form == "hlo" else lowered.as_text())
    loss = facts("run", path)["outputs"][-1]
    assert loss["max"] != 0
