"""Trains and tests an encoder with each encoding."""
