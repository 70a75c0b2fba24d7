"""Presentation of results: tables of text and HTML, labels, datasets, files, messages and progress."""
