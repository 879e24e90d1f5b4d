"""Grouped query attention over ranks: head maps, and gathers for any head and rank counts.

Data flow: :mod:`head_strategies` chooses a :class:`HeadMap`; :mod:`assign_heads` (the pass) puts a
gather of the assigned heads before each attention and a gather of the model's heads after it;
:mod:`gather_rules` move them by ``gather(f(x)) = f(gather(x))``: :mod:`sink_gather` up to the
weights, :mod:`fold_gather` down to the output projection.
"""
