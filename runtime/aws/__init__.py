"""AWS's configurations and application interfaces, over the engine.

Read ``attributes/attribute.py`` first: a table says of each attribute of NxD Inference and of
transformers-neuronx which effect it has on each target. Only this package knows AWS's names.
"""
