"""Many parameters at once: sweeps of orbits, attractors, basins of attraction, with stores that survive."""
