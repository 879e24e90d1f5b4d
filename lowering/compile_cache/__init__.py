"""The cache of compilations. Start with ``neuron_cache``, which finds and keeps them."""
