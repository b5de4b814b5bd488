"""Runs of public implementations, one module for each family; scripts/make_goldens.py is the face.

A module has METHODS, a function for each method, which yields its goldens. It knows nothing of
posenc_jax but names of methods, options and parameters.
"""
