"""Numbers and formulas of papers, reproduced beside those of hyjax."""
