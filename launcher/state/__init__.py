"""What is on disk of a launch, and how a run is found again."""
