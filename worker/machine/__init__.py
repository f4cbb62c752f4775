"""What this node's machine has: addresses, RDMA, GPUs, kernel, the user's Python."""
