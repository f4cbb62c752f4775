"""The registry as a process: journal, service, HTTP. Started by the launcher, imported by nobody."""
