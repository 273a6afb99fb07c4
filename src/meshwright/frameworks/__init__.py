"""Their languages: what launch scripts, configs and commands say, and plans written in their words."""
