"""Programs of rdzv's own that run on the user's interpreter; they import nothing of rdzv."""
