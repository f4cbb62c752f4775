"""What nodes, launcher and registry say to each other: models, words, errors. Pure."""
