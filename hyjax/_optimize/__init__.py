"""Optimal gaits: objectives over orbits, constrained minimization, optima over a parameter."""
