"""Lower bounds on run time from published figures: :mod:`graphgen.lowering.cost.roofline`."""
