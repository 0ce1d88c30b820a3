"""Figures as ratios against a peer in the same run. `make bench` runs them and writes benchmarks/results/."""

from pathlib import Path

RESULTS = Path(__file__).parent / "results"
