"""Does it really run: Megatron Core itself in a child process, and the judge of training logs."""
