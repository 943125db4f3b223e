"""What a Python program uses: a client of the server that starts, follows and decides runs."""
