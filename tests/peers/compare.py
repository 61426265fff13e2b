"""compare.py OUTPUTS.npz REFERENCE.npz: prints the largest difference over the largest reference.

The arrays must have the reference's names and shapes; numbers that are not finite are an error.
"""

import sys

import numpy as np

outputs, reference = (np.load(path) for path in sys.argv[1:3])
worst = 0.0
for name in reference.files:
    expected = reference[name].astype(np.float64)
    if name not in outputs.files:
        sys.exit(f"no output {name}, only {', '.join(outputs.files)}")
    got = outputs[name].astype(np.float64)
    if got.shape != expected.shape:
        sys.exit(f"output {name} has shape {got.shape}, not {expected.shape}")
    if not np.isfinite(got).all():
        sys.exit(f"output {name} has numbers that are not finite")
    worst = max(worst, np.abs(got - expected).max() / max(np.abs(expected).max(), 1e-30))
print(f"{worst:.3e}")
