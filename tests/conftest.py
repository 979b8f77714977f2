"""What holds for every test."""

import atexit
import os
import shutil
import tempfile

# Models here are tiny, and the suite runs in several processes: more threads than cores would make each other wait. Set
# before torch is imported, and inherited by the commands that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Nothing of a test in the cache of whoever runs it, nor the other way round; commands that tests start inherit it.
os.environ["RTX_CACHE"] = tempfile.mkdtemp(prefix="rtx-tests-")
atexit.register(shutil.rmtree, os.environ["RTX_CACHE"], ignore_errors=True)
