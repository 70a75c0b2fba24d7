"""Definition of a hybrid system: modes, transitions, parameters selected by the lens `where`; result codes."""
