"""Programs of a target and its draft, under the names of AWS's fused speculation."""
