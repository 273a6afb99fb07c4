"""Pictures of an answer as SVG text: pure functions that place what they are handed."""
