"""Meshwright: plans, checks and proves the parallel layout of large-model training."""
