"""What differs by compiler: the target, and operations that XLA for it needs in another form.

With them methods and attention read as the mathematics.
"""
