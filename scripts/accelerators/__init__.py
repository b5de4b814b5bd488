"""The programs that scripts/compile_for.py compiles, and the chips it compiles them for."""
