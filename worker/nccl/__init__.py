"""What NCCL is told, and what it says it does."""
