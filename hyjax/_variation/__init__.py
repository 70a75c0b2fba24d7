"""Variations through events, and around an orbit: derivatives by saltation matrices, feedback, noise."""
