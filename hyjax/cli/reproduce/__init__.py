"""Comparison of published numbers and formulas with those of hyjax."""
