"""Parts of an HLO file that no op of the IR models: kept as annotations, and written again.

Start with ``hlo_annotations``, about instructions; ``module_annotations`` is about modules.
"""
