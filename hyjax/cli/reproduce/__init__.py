"""Papers, done again: their numbers or their formulas, beside ours."""
