"""The registry as a process: journal, service, HTTP. The launcher starts it; nobody imports it."""
