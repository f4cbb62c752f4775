"""How a registry is reached and trusted: client, connections, credentials, certificate."""
