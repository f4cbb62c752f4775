"""Which node this is, where a scheduler starts the same command on all of them."""
