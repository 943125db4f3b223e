"""What a Python program uses: its Tools as functions, and a client that starts, follows and decides runs."""
