"""Programs on devices, with stand-ins for the compiler and for the plugin of JAX."""
