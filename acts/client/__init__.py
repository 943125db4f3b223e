"""What a Python program uses of the engine."""
