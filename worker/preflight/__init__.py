"""The checks that a node makes on itself before it joins."""
