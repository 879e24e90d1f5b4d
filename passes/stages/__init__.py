"""Layers divided over the stages of a pipeline of ranks. Read pipeline_stages.py first."""
