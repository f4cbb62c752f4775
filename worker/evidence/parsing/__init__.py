"""What the kernel's texts say of a failure. Pure."""
