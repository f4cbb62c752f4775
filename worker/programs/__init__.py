"""Programs of rdzv's own, on the user's interpreter: they need its standard library alone."""
