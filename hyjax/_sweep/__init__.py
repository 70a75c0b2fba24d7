"""Grids of parameters and initial states: sweeps of orbits with their stores, attractors, basins of attraction."""
