"""HTTP/1.1 for strangers: bounded in time, bytes and connections, one shape of error."""
