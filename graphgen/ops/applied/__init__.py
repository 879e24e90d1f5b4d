"""Ops that apply a function of the module to many elements."""
