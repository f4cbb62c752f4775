"""What the nodes' facts and probes show, and who is to blame where something is wrong. Pure."""
