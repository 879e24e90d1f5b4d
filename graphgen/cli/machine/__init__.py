"""Commands that know machines, this one and several nodes; read doctor_cmd.py first."""
