"""Graph to something that runs: StableHLO text, HLO protobuf, CPU programs, neuronx-cc calls."""
