"""Weight preparation as programs: hoist weight-only computation out of every program.

Start at :mod:`graphgen.passes.weights.lift` (the pass); :mod:`graphgen.passes.weights.derived`
classifies values.
"""
