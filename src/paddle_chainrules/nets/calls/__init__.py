"""What a net is called with, as which program that runs, and the way back."""
