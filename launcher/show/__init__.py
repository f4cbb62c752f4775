"""What a person reads, of a launch that is alive or over."""
