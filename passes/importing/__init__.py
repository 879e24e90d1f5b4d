"""Programs that were traced elsewhere: merged, renamed, their shapes made symbolic, raised.

Read :mod:`~graphgen.passes.importing.import_pipeline` first: the passes of ``graphgen import``.
"""
