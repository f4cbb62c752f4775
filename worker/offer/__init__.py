"""What a node offers when it joins: its addresses, ports, facts and processes."""
