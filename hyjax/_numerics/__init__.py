"""Small dense linear algebra, root finding, sine and cosine, and what works around XLA; each with its reason."""
