"""torchrun with rdzv's rendezvous."""
