"""Runs of public implementations, a module for each family; scripts/make_goldens.py saves them.

Each generator function yields the goldens of the method of its name. Nothing here imports
posenc_jax: its methods, options and parameters are given by name.
"""
