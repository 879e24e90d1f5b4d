"""Weight preparation as programs: hoist what derives from weights alone out of every program.

Start at :mod:`graphgen.passes.weights.lift` (the pass); :mod:`graphgen.passes.weights.derived`
classifies values.
"""
