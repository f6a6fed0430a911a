"""Functions of Paddle's, replaced for whoever calls them."""
