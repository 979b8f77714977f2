"""What holds for every test."""

import os

# Models here are tiny, and the suite runs in several processes: more threads than cores would make each other wait. Set
# before torch is imported, and inherited by the commands that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
