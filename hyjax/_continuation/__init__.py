"""Branches of periodic orbits over a parameter, their special points, and curves of these over two parameters."""
