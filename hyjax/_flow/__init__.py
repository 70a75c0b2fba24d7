"""Flow and jump: integration that locates events, the saltation matrix, simulation through any sequence of modes."""
