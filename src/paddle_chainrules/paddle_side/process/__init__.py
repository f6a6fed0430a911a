"""What belongs to the whole process: signals, threads, the log, random numbers."""
