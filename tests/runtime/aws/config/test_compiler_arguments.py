"""Arguments of neuronx-cc by phase."""

from __future__ import annotations

from graphgen.runtime.aws.config.compiler_arguments import CONTEXT, TOKENS, compiler_arguments
from graphgen.runtime.aws.config.neuron_config import NeuronConfig


def text(phase: str, target: str = "trn2", **values: object) -> str:
    """The arguments on one line."""
    return " ".join(compiler_arguments(NeuronConfig(**values), target, phase))


def test_collectives_of_token_programs_are_in_one_piece():
    assert "--cc-pipeline-tiling-factor=4" in text(CONTEXT, cc_pipeline_tiling_factor=4)
    assert "--cc-pipeline-tiling-factor=1" in text(TOKENS, cc_pipeline_tiling_factor=4)


def test_the_lnc_is_always_there():
    # NxD Inference's own arguments of some families leave it out.
    assert "--lnc=2" in text(TOKENS)
    assert "--lnc=1" in text(TOKENS, "trn1")
    assert "--lnc=1" in text(CONTEXT, logical_nc_config=1)


def test_levels_of_the_phases():
    assert "-O1" in text(CONTEXT)
    assert "-O2" in text(TOKENS)
    assert "--modular-flow-mac-threshold=10" not in text(TOKENS)


def test_long_contexts_have_options_of_their_own():
    short = text(CONTEXT, seq_len=16384)
    long = text(CONTEXT, seq_len=32768)
    assert "scratchpad" not in short
    assert "--hbm-scratchpad-page-size=1024" in long
    assert "--enable-verifier=false" in long
    assert "--hbm-scratchpad-page-size=512" in text(CONTEXT, scratchpad_page_size=512)


def test_switches():
    assert "spill_reload" in text(TOKENS, enable_spill_reload_dge=True)
    assert "--enable-output-completion-notifications" in text(
        TOKENS, enable_output_completion_notifications=True
    )
