"""What a node sees of its ranks: calls, stacks, process groups, and what holds them back."""
