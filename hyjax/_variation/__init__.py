"""Variations through events: applications of the saltation matrix."""
