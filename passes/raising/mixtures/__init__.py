"""Experts of programs traced elsewhere: read raise_experts.py first.

Axes are followed through layouts, to the products of experts and to what chooses these.
"""
