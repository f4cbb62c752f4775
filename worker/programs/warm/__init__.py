"""What starts a node's processes by a fork of one that has imported torch; run by its path."""
