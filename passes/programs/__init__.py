"""Bucket specialization: symbolic programs become one program a size.

Start at :mod:`graphgen.passes.programs.specialize` (the pass);
:mod:`graphgen.passes.programs.bucket_sizes` and :mod:`graphgen.passes.programs.bucket_sizes`
read its options, :mod:`graphgen.passes.programs.specialize` binds what programs run.
"""
