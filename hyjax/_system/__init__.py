"""What a user writes: modes, transitions, hybrid systems, result codes, the lens `where`."""
