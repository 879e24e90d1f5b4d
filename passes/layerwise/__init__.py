"""Real models validated layer by layer, with weights that are streamed.

Read ``validate_layers`` first; ``layer_segments`` cuts a module, ``streamed_run``
evaluates what is cut out.
"""
