"""Which sizes go along with the number of samples, so that one program serves any."""
