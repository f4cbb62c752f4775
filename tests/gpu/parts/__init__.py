"""One module for each question: `run` fills what was seen, `judge` reads it and is pure."""
