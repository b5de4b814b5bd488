"""Trains encoders on sequences of DNA or protein, and tests them on longer ones.

They predict hidden letters, or one label for each sequence.
"""
