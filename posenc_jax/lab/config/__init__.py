"""Configs: their fields, the errors about them, and sweeps over them."""
