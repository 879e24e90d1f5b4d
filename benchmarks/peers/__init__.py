"""The programs graphgen is measured against, as their users would write them."""
