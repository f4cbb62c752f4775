"""What ranks answer to a look, read with care: a program may have written anything there. Pure."""
