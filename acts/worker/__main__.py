"""``python -m acts.worker``: one worker, as ``acts worker`` starts it."""

import os
import sys

from acts.worker.serve import main

code = main()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)  # threads of Tools cannot be stopped, and must not delay the end
