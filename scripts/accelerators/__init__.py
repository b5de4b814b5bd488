"""What scripts/compile_for.py compiles for accelerators that are not at hand, and records."""
