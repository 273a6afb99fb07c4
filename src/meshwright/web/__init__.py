"""The web door: a page and a REST API over the library (`meshwright serve`, extra `web`)."""
