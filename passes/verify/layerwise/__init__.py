"""Real models validated layer by layer, with weights that are streamed.

Read ``validate_layers`` first; ``layer_cuts`` and ``layer_segments`` cut a module, ``streamed_run``
evaluates what is cut out.
"""
