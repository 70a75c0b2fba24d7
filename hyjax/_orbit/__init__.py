"""Strides that return: return map, monodromy matrix, periodic orbits and their derivatives, search without a guess."""
