"""The shape of a config, and sweeps over it."""
