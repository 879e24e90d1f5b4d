"""Application classes: a configuration, a model and an application for each family.

Start with ``sized_config.py``, then any family; ``model_classes.py`` beside has all of them.
"""
