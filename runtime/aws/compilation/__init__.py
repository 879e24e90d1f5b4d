"""Programs of AWS's configurations for Neuron devices."""
