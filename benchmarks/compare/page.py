"""``docs/comparison.md`` from the stored figures."""
from pathlib import Path
RESULTS = Path(__file__).parent / "results" / "results.json"
PAGE = Path(__file__).parents[2] / "docs" / "comparison.md"
def write(results): raise NotImplementedError
