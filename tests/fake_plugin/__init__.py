"""A stand-in for AWS's plugin of JAX: the folder is put on the path of a process of its own."""
