"""The names of a run's nodes in /etc/hosts, written in place and taken out again."""
