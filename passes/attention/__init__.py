"""Flash attention (tiles of tokens and slots, online softmax) and latent attention (MLA)."""
