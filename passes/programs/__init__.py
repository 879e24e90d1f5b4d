"""Programs by bucket: sizes, several steps a launch, on-device sampling, fused speculation."""
