"""Programs with static shapes per bucket: :mod:`graphgen.passes.specialize.specialize` first."""
