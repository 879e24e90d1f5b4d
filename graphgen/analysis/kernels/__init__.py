"""Calls of kernels: functions of the module that a device runs as one op."""
