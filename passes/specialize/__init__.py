"""Bucket specialization: symbolic programs become one program a size.

Start at :mod:`graphgen.passes.specialize.specialize` (the pass);
:mod:`graphgen.passes.specialize.bucket_sizes` and :mod:`graphgen.passes.specialize.named_sizes`
read its options, :mod:`graphgen.passes.specialize.callees` binds what programs run.
"""
