"""Everything that defines a run, as typed data: building it has no side effects."""
