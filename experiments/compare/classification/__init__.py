"""Trains encoders that give each text a label, and tests them on longer texts."""
