"""Fused kernels, which a bias enters; README.md here draws how they are put together."""
