"""Machine code that is called without programs: libraries, and optimizer steps."""
