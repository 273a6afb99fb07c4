"""This machine only: where the servers listen, and under which names they then answer."""

ADDRESSES = ("127.0.0.1", "localhost", "::1")
NAMES = ("localhost", "127.0.0.1", "[::1]")
"""As a request's Host has them: any other is a page elsewhere whose name was rebound to this machine."""
