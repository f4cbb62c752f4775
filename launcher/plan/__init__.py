"""What is submitted: made from settings, hosts and templates, before anything is."""
