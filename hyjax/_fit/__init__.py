"""Parameters from recorded data, by least squares."""
