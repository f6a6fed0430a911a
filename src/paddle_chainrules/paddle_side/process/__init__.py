"""State of the whole process: signals, threads, the log, random numbers."""
