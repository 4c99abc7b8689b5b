"""What processes say that are started to be asked."""
