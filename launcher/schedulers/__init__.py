"""What starts worker runs: the contract, and everything that fulfils it."""
