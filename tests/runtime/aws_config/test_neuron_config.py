from __future__ import annotations

from graphgen.runtime.aws_config.neuron_config import NeuronConfig


def test_buckets_that_are_given_state_the_longest_sequence():
    config = NeuronConfig(
        enable_bucketing=True, context_encoding_buckets=[256, 512], token_generation_buckets=[1024]
    )
    assert (config.value("seq_len"), config.value("max_context_length")) == (1024, 1024)
    assert NeuronConfig().value("seq_len") == 128
