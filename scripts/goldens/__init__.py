"""Runs of public implementations, a module for each family; scripts/make_goldens.py saves them.

METHODS of a module has a function for each method, which yields its goldens. Nothing here imports
posenc_jax: its methods, options and parameters are given by name.
"""
