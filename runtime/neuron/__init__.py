"""Models for Neuron devices. Start with ``device_programs``; ``neuron_backend`` runs a folder."""
