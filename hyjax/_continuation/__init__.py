"""Branches of periodic orbits over a parameter, their special points, and loci of special points over two parameters."""
