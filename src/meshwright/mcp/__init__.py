"""The door for agents: the Model Context Protocol, over standard input or HTTP on loopback."""
