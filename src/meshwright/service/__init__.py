"""What the doors that serve many share: bounded worker processes, and the reading of what was sent."""
