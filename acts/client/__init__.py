"""What a Python program uses: its Tools as functions, and a client of runs."""
