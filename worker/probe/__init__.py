"""Which peers this node reaches, and who reaches it."""
