"""Measuring plans on the real cluster: short runs through an existing scheduler, and learning from them.

runs        what is measured and what came of it
store       state on disk: one JSON file a run, written atomically; an append-only log of events
wrapper     the script around a run: it starts at most once and leaves what happened beside it
schedulers  Slurm, this machine, or commands that somebody gives
outcome     a log and a job state as a result
drive       the loop that submits, watches and concludes; killed at any point, it goes on from the disk
ranking     measured beside predicted
learned     measured steps as a calibration of one's own cluster
"""
