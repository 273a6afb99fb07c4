"""Shell scripts: parsed and evaluated without ever being run."""
