"""Public import names of NxD Inference and transformers-neuronx: ``nxdi``, ``tnx``."""
