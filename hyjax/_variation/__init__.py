"""Variations through events: derivatives that are products of saltation matrices."""
