"""What a program would take on an accelerator, from its work and the device's figures alone."""
