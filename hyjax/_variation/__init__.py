"""Variations through events: what the saltation matrix is for."""
